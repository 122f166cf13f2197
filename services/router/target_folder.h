// What the router needs of the target model's folder: the tokenizer and the ids that end a text.
#ifndef TANDEM_SERVICES_ROUTER_TARGET_FOLDER_H_
#define TANDEM_SERVICES_ROUTER_TARGET_FOLDER_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"

namespace tandem {

struct TargetFolder {
  std::string name;  // of the folder
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<int32_t>
      end_of_text_ids;  // generation_config.json's, else config.json's; may be empty

  // Errors name file and field. No weights are read.
  static absl::StatusOr<TargetFolder> Load(const std::filesystem::path& folder);
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_TARGET_FOLDER_H_
