// The parts of the target model's folder that the router needs: the tokenizer and the ids that end
// a text.
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
  std::string name;  // name of the folder, without its path
  std::unique_ptr<Tokenizer> tokenizer;
  // Ids from generation_config.json, or from config.json if that file states none. May be empty.
  std::vector<int32_t> end_of_text_ids;

  // Errors name the file and the field. No weights are read.
  static absl::StatusOr<TargetFolder> Load(const std::filesystem::path& folder);
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_SERVER_TARGET_FOLDER_H_
