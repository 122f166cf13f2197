// Reads the lines of a chat, from a terminal or from anything else.
#ifndef TANDEM_SERVICES_CLI_CHAT_LINE_READER_H_
#define TANDEM_SERVICES_CLI_CHAT_LINE_READER_H_

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>

#include "services/cli/chat/interrupt.h"
#include "services/cli/chat/line_history.h"

namespace tandem::cli {

class LineReader {
 public:
  enum class Outcome : uint8_t { kLine, kEnd, kInterrupted };

  virtual ~LineReader() = default;

  // Waits for a line, which *line gets without its newline. kEnd: there are no more lines.
  // kInterrupted: the interrupt was raised meanwhile.
  virtual Outcome Read(const std::string& prompt, std::string* line) = 0;
};

// Reads a descriptor. On a terminal, the terminal itself lets the user edit the line.
class PlainLineReader final : public LineReader {
 public:
  // `prompts`: null for none.
  PlainLineReader(int input, std::ostream* prompts, Interrupt& interrupt)
      : input_(input), prompts_(prompts), interrupt_(interrupt) {}

  Outcome Read(const std::string& prompt, std::string* line) override;

 private:
  const int input_;
  std::ostream* const prompts_;
  Interrupt& interrupt_;
  std::string waiting_;  // what was read behind the last line
  bool has_ended_ = false;
};

// Returns a reader of standard input and standard output, both terminals, with keys for editing and
// for earlier lines, or null if this build has no such reader.
std::unique_ptr<LineReader> NewEditingReader(Interrupt& interrupt, LineHistory& history);

// Waits until `input` can be read. Returns false if the interrupt was raised first.
bool AwaitInput(int input, const Interrupt& interrupt);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_CHAT_LINE_READER_H_
