// The options of `tandem chat`.
#ifndef TANDEM_SERVICES_CLI_CHAT_CHAT_OPTIONS_H_
#define TANDEM_SERVICES_CLI_CHAT_CHAT_OPTIONS_H_

#include <string>
#include <vector>

#include "services/cli/chat/chat_settings.h"
#include "services/cli/supervisor/server_session.h"
#include "services/cli/terminal/parsed.h"

namespace tandem::cli {

struct ChatOptions {
  SessionOptions session;
  ChatSettings settings;
  bool no_history = false;  // typed lines are not kept
};

// `arguments` are the arguments after the command's name.
Parsed<ChatOptions> ParseChat(std::vector<std::string> arguments);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_CHAT_CHAT_OPTIONS_H_
