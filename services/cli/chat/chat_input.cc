#include "services/cli/chat/chat_input.h"

#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/flags/suggestion.h"

namespace tandem::cli {

namespace {

constexpr std::string_view kBlockMark = "\"\"\"";
constexpr std::string_view kBlanks = " \t\r\n";

struct ChatCommandEntry {
  std::string_view name;
  std::string_view argument;  // empty: the command takes none
  bool needs_argument;
  ChatCommand command;
  std::string_view help;
};
constexpr std::array<ChatCommandEntry, 8> kChatCommands = {{
    {"/set", "NAME VALUE", false, ChatCommand::kSet,
     "changes a setting; without a value it shows one, and alone it lists all"},
    {"/retry", "", false, ChatCommand::kRetry, "answers the last message again"},
    {"/reset", "", false, ChatCommand::kReset, "forgets the conversation"},
    {"/stats", "", false, ChatCommand::kStats, "shows the totals of the conversation"},
    {"/save", "FILE", true, ChatCommand::kSave, "writes the messages to a file, as JSON"},
    {"/load", "FILE", true, ChatCommand::kLoad, "goes on with the messages of such a file"},
    {"/help", "", false, ChatCommand::kHelp, "shows this list"},
    {"/quit", "", false, ChatCommand::kQuit, "ends; so does Ctrl-D"},
}};

std::string_view StripBlanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

ChatInput NoSuchCommand(const std::string& name) {
  std::vector<std::string> names;
  names.reserve(std::size(kChatCommands));
  for (const ChatCommandEntry& entry : kChatCommands) names.emplace_back(entry.name);
  return BadCommand{absl::StrCat("there is no command ", name, DidYouMean(name, names),
                                 " (/help lists the commands, and a message that begins with a "
                                 "slash is typed with two)")};
}

}  // namespace

std::optional<ChatText> LineCollector::Add(const std::string& line) {
  std::string_view rest = line;
  if (rest.ends_with('\r')) rest.remove_suffix(1);
  const bool begins = !is_open_;
  if (begins && StripBlanks(rest).starts_with(kBlockMark)) {
    rest = StripBlanks(rest).substr(kBlockMark.size());
    is_open_ = in_block_ = true;
    if (rest.empty()) return std::nullopt;  // the text begins in the next line
  } else if (!begins && !text_.empty()) {
    text_ += '\n';
  }
  is_open_ = true;
  const std::string_view closing = StripBlanks(rest);
  if (in_block_ && closing.ends_with(kBlockMark)) {
    text_ += rest.substr(0, rest.rfind(kBlockMark));
    if (text_.ends_with('\n')) text_.pop_back();  // the mark has a line of its own
    return Take();
  }
  if (!in_block_ && rest.ends_with('\\')) {
    text_ += rest.substr(0, rest.size() - 1);
    return std::nullopt;
  }
  text_ += rest;
  return in_block_ ? std::nullopt : Take();
}

std::optional<ChatText> LineCollector::Take() {
  if (!std::exchange(is_open_, false)) return std::nullopt;
  return ChatText{.text = std::exchange(text_, {}), .is_block = std::exchange(in_block_, false)};
}

ChatInput ParseChatInput(const ChatText& text) {
  const std::string_view stripped = StripBlanks(text.text);
  if (stripped.empty()) return Nothing{};
  if (text.is_block) return SayToModel{text.text};
  if (!stripped.starts_with('/')) return SayToModel{std::string(StripBlanks(text.text))};
  if (stripped.starts_with("//")) return SayToModel{std::string(stripped.substr(1))};
  const size_t end = stripped.find_first_of(kBlanks);
  const std::string name(stripped.substr(0, end));
  const std::string argument(end == std::string_view::npos ? std::string_view()
                                                           : StripBlanks(stripped.substr(end)));
  for (const ChatCommandEntry& entry : kChatCommands) {
    if (entry.name != name) continue;
    if (entry.argument.empty() && !argument.empty()) {
      return BadCommand{name + " takes no argument"};
    }
    if (entry.needs_argument && argument.empty()) {
      return BadCommand{
          absl::StrCat(name, " needs an argument: ", name, " ", std::string(entry.argument))};
    }
    return RunCommand{entry.command, argument};
  }
  return NoSuchCommand(name);
}

std::string ChatHelp() {
  std::string help;
  for (const ChatCommandEntry& entry : kChatCommands) {
    help += absl::StrFormat("  %-16s %s\n",
                            absl::StrCat(std::string(entry.name), entry.argument.empty() ? "" : " ",
                                         std::string(entry.argument)),
                            std::string(entry.help));
  }
  return help +
         "  A line that ends with \\ goes on in the next one, and \"\"\" opens and closes a text "
         "of\n"
         "  several lines. Ctrl-C stops an answer.\n";
}

}  // namespace tandem::cli
