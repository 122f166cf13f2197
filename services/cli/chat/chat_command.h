// `tandem chat`
#ifndef TANDEM_SERVICES_CLI_CHAT_CHAT_COMMAND_H_
#define TANDEM_SERVICES_CLI_CHAT_CHAT_COMMAND_H_

#include "services/cli/chat/chat_options.h"
#include "services/cli/terminal/console.h"

namespace tandem::cli {

// Reads standard input itself, and not `console.in`, so that a signal can end the wait for a line.
// Returns the exit code.
int Chat(const ChatOptions& options, Console& console);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_CHAT_CHAT_COMMAND_H_
