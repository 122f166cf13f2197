// What the lines that a user types mean.
#ifndef TANDEM_SERVICES_CLI_CHAT_CHAT_INPUT_H_
#define TANDEM_SERVICES_CLI_CHAT_CHAT_INPUT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

namespace tandem::cli {

// A text of one line or more. Commands begin with a slash, and the texts of blocks are not
// commands.
struct ChatText {
  std::string text;
  bool is_block = false;
};

// Puts lines together. A line that ends with \ goes on in the next line. A line that begins with
// """ opens a block, which a line that ends with """ closes.
class LineCollector {
 public:
  // Returns the text when the line completes it.
  std::optional<ChatText> Add(const std::string& line);
  // Returns the text so far, if there is one, and begins anew.
  std::optional<ChatText> Take();

  // Whether the next line continues a text.
  bool is_open() const { return is_open_; }

 private:
  std::string text_;
  bool is_open_ = false;
  bool in_block_ = false;
};

enum class ChatCommand : uint8_t { kHelp, kSet, kReset, kStats, kRetry, kSave, kLoad, kQuit };

struct SayToModel {
  std::string text;
};
struct RunCommand {
  ChatCommand command;
  std::string argument;  // without blanks around it
};
struct BadCommand {
  std::string message;
};
struct Nothing {};
using ChatInput = std::variant<Nothing, SayToModel, RunCommand, BadCommand>;

// A message that begins with a slash is typed with two of them. A command that does not exist, or
// has a wrong number of arguments, is a BadCommand, whose message suggests the nearest one.
ChatInput ParseChatInput(const ChatText& text);

// Returns the lines of /help.
std::string ChatHelp();

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_CHAT_CHAT_INPUT_H_
