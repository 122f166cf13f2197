// What a user can set during a chat.
#ifndef TANDEM_SERVICES_CLI_CHAT_CHAT_SETTINGS_H_
#define TANDEM_SERVICES_CLI_CHAT_CHAT_SETTINGS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/cli/terminal/palette.h"
#include "tandem/v1/generate.pb.h"

namespace tandem::cli {

struct ChatSettings {
  v1::GenerateRequest request;  // its parameters of sampling and speculation
  std::string system;           // message of the system; empty: none
  std::string template_kwargs;  // a JSON object; empty: none
  ColorMode color = ColorMode::kAuto;
};

// Changes the setting of that name. The value `default` takes a value away. INVALID_ARGUMENT: there
// is no such setting, which suggests the nearest one, or the value is not allowed, which says what
// is. `served` has the server's drafters and limits.
absl::Status ChangeSetting(const std::string& name, const std::string& value,
                           const v1::ServerInfo& served, ChatSettings* settings);

// Returns "temperature  0.7". INVALID_ARGUMENT: there is no such setting.
absl::StatusOr<std::string> ShowSetting(const std::string& name, const ChatSettings& settings);

// Returns a line for each setting.
std::string ListSettings(const ChatSettings& settings);

// INVALID_ARGUMENT: the text is not a JSON object. The message begins with `name`.
absl::Status CheckTemplateKwargs(const std::string& name, const std::string& text);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_CHAT_CHAT_SETTINGS_H_
