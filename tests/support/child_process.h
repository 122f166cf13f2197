// Runs an executable of this build (or any other) and reads what it prints.
#ifndef TANDEM_TESTS_SUPPORT_CHILD_PROCESS_H_
#define TANDEM_TESTS_SUPPORT_CHILD_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tandem::testing {

// Path of an executable of this build: `tandem`, `tandem-router`, …
std::filesystem::path Executable(const std::string& name);

// One child. Its standard output is a pipe, standard error goes where the parent's goes. The
// destructor asks it to end (SIGTERM), kills it by its id when it has not ended after 5 s, and
// reaps it. Not thread-safe.
class ChildProcess {
 public:
  // `command[0]` is the path of the executable; `environment` ("NAME=value") is added to the
  // parent's. Throws std::runtime_error when it cannot be started.
  explicit ChildProcess(const std::vector<std::string>& command,
                        const std::vector<std::string>& environment = {});
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }

  // Reads lines until one starts with `prefix` and returns what follows it; throws
  // std::runtime_error, with all that was printed, when the output ends or `timeout` passes first.
  std::string WaitForLine(const std::string& prefix, std::chrono::milliseconds timeout);
  // The address of the line "ready: ADDRESS".
  std::string WaitReady(std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
    return WaitForLine("ready: ", timeout);
  }
  // Reads to the end of the output and returns all that was printed since the start.
  std::string ReadAll(std::chrono::milliseconds timeout);

  void Signal(int signal);
  // The exit code, or 128 + the signal that ended it; nothing when it still runs after `timeout`.
  std::optional<int> Wait(std::chrono::milliseconds timeout);

 private:
  // Waits for more output; false when it ended.
  bool ReadMore(std::chrono::steady_clock::time_point deadline);

  pid_t pid_ = -1;
  int output_fd_ = -1;
  std::optional<int> exit_code_;
  std::string output_;     // everything read so far
  size_t line_start_ = 0;  // start of the first line that WaitForLine has not looked at
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_CHILD_PROCESS_H_
