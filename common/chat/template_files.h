// Reads the chat templates and the special tokens of a model folder.
#ifndef TANDEM_COMMON_CHAT_TEMPLATE_FILES_H_
#define TANDEM_COMMON_CHAT_TEMPLATE_FILES_H_

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace tandem {

struct TemplateFiles {
  // By name: "default", and perhaps "tool_use". Folders with one template name it "default".
  std::map<std::string, std::string> templates;
  // Where they were found, for messages to the operator.
  std::string place;
  // bos_token, eos_token and the like, as texts.
  nlohmann::ordered_json special_tokens = nlohmann::ordered_json::object();

  // Reads, in this order of preference, the template `file`; FOLDER/chat_template.jinja with
  // FOLDER/additional_chat_templates/NAME.jinja; and the chat_template of
  // FOLDER/tokenizer_config.json. No template is no error here. Special tokens are those of
  // tokenizer_config.json, then those of special_tokens_map.json. Fails with INVALID_ARGUMENT for a
  // file that cannot be read or understood.
  static absl::StatusOr<TemplateFiles> Read(const std::filesystem::path& folder,
                                            const std::optional<std::filesystem::path>& file);
};

}  // namespace tandem

#endif  // TANDEM_COMMON_CHAT_TEMPLATE_FILES_H_
