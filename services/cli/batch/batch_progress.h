// What a batch says on standard error while it runs.
#ifndef TANDEM_SERVICES_CLI_BATCH_BATCH_PROGRESS_H_
#define TANDEM_SERVICES_CLI_BATCH_BATCH_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "services/cli/terminal/console.h"

namespace tandem::cli {

struct BatchCounts {
  int64_t lines = 0;     // in the file, without blank ones
  int64_t earlier = 0;   // answered by an earlier run
  int64_t answered = 0;  // by this run
  int64_t failed = 0;    // in this run, malformed ones included
  int64_t refused = 0;   // the failed ones that would fail again: malformed, or at fault themselves
  int64_t tokens = 0;    // in this run's answers
};

// Returns "12 of 100 lines, 1 failed, 512 tokens/s, 3 s left". `seconds`: since the run began.
std::string BatchProgressText(const BatchCounts& counts, double seconds);

// Returns what to do about the lines that failed, in sentences. Empty: none failed.
std::string BatchFailureAdvice(const BatchCounts& counts);

// On a terminal one line, which is written anew, and elsewhere a line every ten seconds. Not for
// several threads at once.
class BatchProgress {
 public:
  explicit BatchProgress(Console& console) : console_(console) {}

  // Called often.
  void Show(const BatchCounts& counts);
  // Prints a line that stays.
  void Say(const std::string& text);
  // Prints the counts at the end.
  void End(const BatchCounts& counts);

  double seconds() const;

 private:
  void Clear();

  Console& console_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double shown_at_ = 0;  // seconds
  bool is_shown_ = false;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BATCH_BATCH_PROGRESS_H_
