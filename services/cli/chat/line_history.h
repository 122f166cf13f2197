// The lines that were typed in earlier runs.
#ifndef TANDEM_SERVICES_CLI_CHAT_LINE_HISTORY_H_
#define TANDEM_SERVICES_CLI_CHAT_LINE_HISTORY_H_

#include <filesystem>
#include <string>
#include <vector>

namespace tandem::cli {

// A file of lines that only its owner can read. Several runs may append to it at once. A failure
// costs the history only, so no function reports one.
class LineHistory {
 public:
  static constexpr size_t kMostLines = 1000;

  // An empty path: nothing is kept.
  explicit LineHistory(std::filesystem::path path) : path_(std::move(path)) {}

  // Returns the newest lines, and cuts a file that has become too long.
  std::vector<std::string> Load();
  // Blank lines, and a line that equals the one before it, are left out. Returns whether the line
  // was new.
  bool Add(const std::string& line);

 private:
  std::filesystem::path path_;
  std::string last_;
};

// Returns the file under $XDG_STATE_HOME, or ~/.local/state. Empty: there is no home.
std::filesystem::path ChatHistoryPath();

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_CHAT_LINE_HISTORY_H_
