#include "services/cli/chat/line_history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <system_error>

namespace tandem::cli {

namespace {

constexpr int kOwnerOnly = 0600;

// Makes the missing folders of the path, which only the owner can enter.
void MakeFolders(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (folder.empty() || std::filesystem::exists(folder, ignored)) return;
  MakeFolders(folder.parent_path());
  mkdir(folder.c_str(), 0700);
}

void WriteLines(const std::filesystem::path& path, const std::string& lines, int flags) {
  const int file =
      open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | flags, kOwnerOnly);
  if (file < 0) return;
  // The file may be older, with another mode. One write appends all lines or none.
  if (fchmod(file, kOwnerOnly) == 0) (void)!write(file, lines.data(), lines.size());
  close(file);
}

}  // namespace

std::vector<std::string> LineHistory::Load() {
  std::vector<std::string> lines;
  if (path_.empty()) return lines;
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  if (lines.size() > kMostLines) {
    lines.erase(lines.begin(), lines.end() - kMostLines);
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    WriteLines(path_, text, O_TRUNC);
  }
  if (!lines.empty()) last_ = lines.back();
  return lines;
}

bool LineHistory::Add(const std::string& line) {
  if (line.find_first_not_of(" \t") == std::string::npos || line == last_) return false;
  last_ = line;
  if (path_.empty()) return true;
  MakeFolders(path_.parent_path());
  WriteLines(path_, line + "\n", O_APPEND);
  return true;
}

std::filesystem::path ChatHistoryPath() {
  const char* const state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state == '/') {
    return std::filesystem::path(state) / "tandem" / "chat_history";
  }
  const char* const home = std::getenv("HOME");
  if (home == nullptr || *home != '/') return {};
  return std::filesystem::path(home) / ".local" / "state" / "tandem" / "chat_history";
}

}  // namespace tandem::cli
