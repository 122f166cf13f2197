#include "services/cli/chat/chat_command.h"

#include <signal.h>
#include <unistd.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "services/cli/chat/chat_session.h"
#include "services/cli/chat/interrupt.h"
#include "services/cli/chat/line_history.h"
#include "services/cli/chat/line_reader.h"
#include "services/cli/terminal/errors.h"

namespace tandem::cli {

namespace {

// A person who types wants to go on after Ctrl-C, and a script does not.
bool HandleSignal(int signal, bool is_interactive, Interrupt& interrupt, GenerationClient& client) {
  if (!is_interactive || signal != SIGINT) {
    interrupt.End();
    return false;
  }
  interrupt.Raise();
  client.CancelRunning();
  return true;
}

absl::Status CheckCanChat(const v1::ServerInfo& served) {
  if (!served.chat_template().empty()) return absl::OkStatus();
  return FailedPrecondition(absl::StrCat(served.model(), " cannot chat: ",
                                         served.chat_template_problem().empty()
                                             ? "the server renders no chat templates"
                                             : served.chat_template_problem(),
                                         " (tandem generate continues a plain text)"));
}

}  // namespace

int Chat(const ChatOptions& options, Console& console) {
  const bool is_interactive = isatty(STDIN_FILENO) == 1;
  Interrupt interrupt;
  LineHistory history(options.no_history ? "" : ChatHistoryPath());
  std::unique_ptr<LineReader> reader;
  if (is_interactive && console.out_is_terminal) reader = NewEditingReader(interrupt, history);
  if (reader == nullptr) {
    std::ostream* const prompts = console.out_is_terminal ? &console.out : &console.err;
    reader = std::make_unique<PlainLineReader>(STDIN_FILENO, is_interactive ? prompts : nullptr,
                                               interrupt);
  }
  auto opened = ServerSession::Open(options.session, console);
  if (!opened.ok()) return PrintError(opened.status(), console);
  ServerSession& session = **opened;
  const auto served = session.client().GetServerInfo();
  if (!served.ok()) return PrintServerError(served.status(), console);
  if (const absl::Status can_chat = CheckCanChat(*served); !can_chat.ok()) {
    return PrintError(can_chat, console);
  }
  session.SetSignalHandler([&, is_interactive](int signal) {
    return HandleSignal(signal, is_interactive, interrupt, session.client());
  });
  ChatSession chat({.client = session.client(),
                    .reader = *reader,
                    .interrupt = interrupt,
                    .console = console,
                    .served = *served,
                    .is_interactive = is_interactive},
                   options.settings);
  const int exit_code = chat.Run();
  session.SetSignalHandler(nullptr);
  return exit_code;
}

}  // namespace tandem::cli
