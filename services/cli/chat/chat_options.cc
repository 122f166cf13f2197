#include "services/cli/chat/chat_options.h"

#include <utility>

#include "services/cli/commands/generate_options.h"
#include "services/cli/supervisor/server_flags.h"
#include "services/cli/terminal/option_parser.h"

namespace tandem::cli {

namespace {

void BindChat(FlagParser& parser, ChatOptions& options) {
  parser.Bind("--system", &options.settings.system);
  parser.OnText("--template-kwargs", [&options](const std::string& text) {
    options.settings.template_kwargs = text;
    return CheckTemplateKwargs("--template-kwargs", text);
  });
  parser.Bind("--no-history", &options.no_history);
  BindColor(parser, options.settings.color);
  BindRequest(parser, &options.settings.request, options.session.server);
  BindSession(parser, options.session);
}

std::string CheckChat(const FlagParser& parser, ChatOptions& options) {
  return CheckSession(parser, options.session);
}

}  // namespace

Parsed<ChatOptions> ParseChat(std::vector<std::string> arguments) {
  return ParseOptions<ChatOptions>(
      Program::kChat,
      "Holds a conversation in the terminal, each token in the color of its source. /help lists\n"
      "the commands. Without a terminal, each line of standard input is a message. --max-tokens\n"
      "TOKENS limits each answer.",
      std::move(arguments), BindChat, CheckChat);
}

}  // namespace tandem::cli
