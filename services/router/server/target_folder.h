// What the router needs of the target model's folder: the tokenizer and the ids that end a text.
#ifndef TANDEM_SERVICES_ROUTER_SERVER_TARGET_FOLDER_H_
#define TANDEM_SERVICES_ROUTER_SERVER_TARGET_FOLDER_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"

namespace tandem {

struct TargetFolder {
  std::string name;  // the folder's own, without its path
  std::unique_ptr<Tokenizer> tokenizer;
  // Those of generation_config.json, or else of config.json. May be empty.
  std::vector<int32_t> end_of_text_ids;

  // Errors name file and field. No weights are read.
  static absl::StatusOr<TargetFolder> Load(const std::filesystem::path& folder);
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_SERVER_TARGET_FOLDER_H_
