#include "services/cli/chat/line_reader.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace tandem::cli {

bool AwaitInput(int input, const Interrupt& interrupt) {
  std::array<pollfd, 2> waits = {{{.fd = input, .events = POLLIN, .revents = 0},
                                  {.fd = interrupt.descriptor(), .events = POLLIN, .revents = 0}}};
  while (poll(waits.data(), waits.size(), -1) < 0 && errno == EINTR) {
  }
  return waits[1].revents == 0;
}

LineReader::Outcome PlainLineReader::Read(const std::string& prompt, std::string* line) {
  if (prompts_ != nullptr) *prompts_ << prompt << std::flush;
  while (true) {
    if (const size_t end = waiting_.find('\n'); end != std::string::npos) {
      *line = waiting_.substr(0, end);
      waiting_.erase(0, end + 1);
      return Outcome::kLine;
    }
    if (has_ended_) {
      if (waiting_.empty()) return Outcome::kEnd;
      line->swap(waiting_);
      waiting_.clear();
      return Outcome::kLine;
    }
    if (!AwaitInput(input_, interrupt_)) {
      interrupt_.Take();
      return Outcome::kInterrupted;
    }
    std::array<char, 4096> piece;
    const ssize_t size = read(input_, piece.data(), piece.size());
    if (size < 0 && errno == EINTR) continue;
    // A terminal goes on after Ctrl-D, but a chat does not.
    if (size <= 0) has_ended_ = true;
    if (size > 0) waiting_.append(piece.data(), static_cast<size_t>(size));
  }
}

#ifndef TANDEM_HAS_EDITLINE
std::unique_ptr<LineReader> NewEditingReader(Interrupt& /*interrupt*/, LineHistory& /*history*/) {
  return nullptr;
}
#endif

}  // namespace tandem::cli
