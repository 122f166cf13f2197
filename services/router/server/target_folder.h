// The parts of the target model's folder that the router needs: the tokenizer, the ids that end a
// text, and the chat template.
#ifndef TANDEM_SERVICES_ROUTER_SERVER_TARGET_FOLDER_H_
#define TANDEM_SERVICES_ROUTER_SERVER_TARGET_FOLDER_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/chat/chat_template.h"
#include "common/tokenizer/tokenizer.h"

namespace tandem {

struct TargetFolder {
  std::string name;  // name of the folder, without its path
  std::unique_ptr<Tokenizer> tokenizer;
  // Ids from generation_config.json, or from config.json if that file states none. May be empty.
  std::vector<int32_t> end_of_text_ids;

  // Or the reason for which chats are refused.
  absl::StatusOr<ChatTemplate> chat_template = absl::NotFoundError("none was loaded");

  // Errors name the file and the field. No weights are read. The file `chat_template`, if it is
  // given, takes the place of the model's own template, and must compile. A template of the model
  // that does not compile is no error here.
  static absl::StatusOr<TargetFolder> Load(
      const std::filesystem::path& folder,
      const std::optional<std::filesystem::path>& chat_template = {});
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_SERVER_TARGET_FOLDER_H_
