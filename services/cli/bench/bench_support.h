// What the benchmarks have in common.
#ifndef TANDEM_SERVICES_CLI_BENCH_BENCH_SUPPORT_H_
#define TANDEM_SERVICES_CLI_BENCH_BENCH_SUPPORT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/cli/terminal/console.h"

namespace tandem::cli {

// The non-empty lines of a file; of no file: six openings of tales. Errors name --prompts.
absl::StatusOr<std::vector<std::string>> ReadPrompts(const std::string& path);

// "AMD EPYC 7B13, 2 hardware threads"
std::string Hardware();

// How far a long measurement is, on standard error: a line that is written over on a terminal,
// elsewhere one line each tenth.
class Progress {
 public:
  Progress(int total, Console& console) : total_(total), console_(console) {}
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Run number `done` (from 1) of `total` begins, or ends where it shows nothing else.
  void Step(const std::string& what);
  // The last so many runs are to be done again.
  void TakeBack(int runs) { done_ -= runs; }
  // `fraction` of the run is over, in [0, 1]: for runs that take long.
  void Within(double fraction);

 private:
  void Show(double done);

  int total_;
  int done_ = 0;
  int tenths_ = 0;  // that were written
  std::string what_;
  Console& console_;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_BENCH_SUPPORT_H_
