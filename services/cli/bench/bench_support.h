// Functions that both benchmarks use.
#ifndef TANDEM_SERVICES_CLI_BENCH_BENCH_SUPPORT_H_
#define TANDEM_SERVICES_CLI_BENCH_BENCH_SUPPORT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/cli/terminal/console.h"

namespace tandem::cli {

// Returns the non-empty lines of a file. An empty `path` gives six built-in openings of tales.
// Errors name --prompts.
absl::StatusOr<std::vector<std::string>> ReadPrompts(const std::string& path);

// Returns, for example, "AMD EPYC 7B13, 2 hardware threads".
std::string Hardware();

// Shows the progress of a long measurement on standard error. On a terminal, one line is
// overwritten. Otherwise, a line is printed for each tenth of the measurement.
class Progress {
 public:
  Progress(int total, Console& console) : total_(total), console_(console) {}
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Call this function when the next of `total` runs begins. If a run shows no other progress, call
  // it when the run has ended.
  void Step(const std::string& what);
  // The last `runs` runs will be repeated.
  void TakeBack(int runs) { done_ -= runs; }
  // Call this function during long runs. `fraction` is the part of the current run that is over, in
  // [0, 1].
  void Within(double fraction);

 private:
  void Show(double done);

  int total_;
  int done_ = 0;
  int tenths_ = 0;  // number of tenths that were printed
  std::string what_;
  Console& console_;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_BENCH_SUPPORT_H_
