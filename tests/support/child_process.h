// Runs an executable of this build, or any other, and reads its output.
#ifndef TANDEM_TESTS_SUPPORT_CHILD_PROCESS_H_
#define TANDEM_TESTS_SUPPORT_CHILD_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tandem::testing {

// Returns the path of an executable of this build: `tandem`, `tandem-router`, …
std::filesystem::path Executable(const std::string& name);

// One child. Its standard output is a pipe, and it shares the parent's standard error. The
// destructor asks the child to end (SIGTERM), kills it by its id if it does not end within 5 s, and
// reaps it. Not thread-safe.
class ChildProcess {
 public:
  // `command[0]` is the path of the executable. `environment` ("NAME=value") is added to the
  // parent's. Throws std::runtime_error if the child cannot be started.
  explicit ChildProcess(const std::vector<std::string>& command,
                        const std::vector<std::string>& environment = {});
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }

  // Reads lines until one starts with `prefix`, and returns the rest of that line. Throws
  // std::runtime_error with the whole output if the output ends or `timeout` passes first.
  std::string WaitForLine(const std::string& prefix, std::chrono::milliseconds timeout);
  // Returns the address of the line "ready: ADDRESS".
  std::string WaitReady(std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
    return WaitForLine("ready: ", timeout);
  }
  // Reads to the end of the output and returns the whole output since the start.
  std::string ReadAll(std::chrono::milliseconds timeout);

  void Signal(int signal);
  // Returns the exit code, or 128 + the signal that ended the child. Returns nothing if the child
  // still runs after `timeout`.
  std::optional<int> Wait(std::chrono::milliseconds timeout);

 private:
  // Waits for more output. Returns false if the output ended.
  bool ReadMore(std::chrono::steady_clock::time_point deadline);

  pid_t pid_ = -1;
  int output_fd_ = -1;
  std::optional<int> exit_code_;
  std::string output_;     // output read so far
  size_t line_start_ = 0;  // start of the first line that WaitForLine has not seen
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_CHILD_PROCESS_H_
