// The loop of `tandem chat`: a line, what it asks for, the next line.
#ifndef TANDEM_SERVICES_CLI_CHAT_CHAT_SESSION_H_
#define TANDEM_SERVICES_CLI_CHAT_CHAT_SESSION_H_

#include <string>

#include "absl/status/status.h"
#include "services/cli/chat/chat_input.h"
#include "services/cli/chat/chat_settings.h"
#include "services/cli/chat/chat_totals.h"
#include "services/cli/chat/conversation.h"
#include "services/cli/chat/interrupt.h"
#include "services/cli/chat/line_reader.h"
#include "services/cli/client/generation_client.h"
#include "services/cli/stream/token_printer.h"
#include "services/cli/terminal/console.h"
#include "services/cli/terminal/palette.h"

namespace tandem::cli {

// A person goes on after an error and after Ctrl-C, which stops an answer. Otherwise both end the
// chat.
class ChatSession {
 public:
  struct Parts {
    GenerationClient& client;
    LineReader& reader;
    Interrupt& interrupt;
    Console& console;
    v1::ServerInfo served;
    bool is_interactive = false;
  };
  ChatSession(const Parts& parts, const ChatSettings& settings);

  // Returns the exit code.
  int Run();

 private:
  // These return whether the chat goes on, and set the exit code if it does not.
  bool OnInterrupt();
  bool OnText(const ChatText& text);
  bool OnCommand(const RunCommand& command);
  bool OnError(const absl::Status& status);
  bool Ask();

  // Streams the answer to the conversation.
  absl::Status Answer();
  absl::Status OnAnswered(const v1::Completion& completion);
  // Forgets the oldest messages while the conversation leaves no room for an answer.
  absl::Status FitIntoContext();
  absl::Status Set(const std::string& argument);
  absl::Status Save(const std::string& path);
  absl::Status Load(const std::string& path);
  void Reset();

  v1::Chat MakeChat() const;
  void Greet();
  // Prints dim text that is not a part of an answer.
  void Note(const std::string& text);
  Palette Notes() const;

  const Parts parts_;
  ChatSettings settings_;
  Conversation conversation_;
  LineCollector collector_;
  ChatTotals totals_;
  TokenTexts texts_;
  int exit_code_;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_CHAT_CHAT_SESSION_H_
