// One child of the supervisor: how it is started, read, and ended.
#ifndef TANDEM_SERVICES_CLI_SUPERVISOR_CHILD_PROCESS_H_
#define TANDEM_SERVICES_CLI_SUPERVISOR_CHILD_PROCESS_H_

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::cli {

// A child runs in our process session, so that the whole session can be listed and ended at once.
// It has a process group of its own. Ctrl-C in a terminal therefore reaches only the supervisor,
// which decides the order of stopping. Not thread-safe: everything, callbacks included, happens on
// the io_context's thread. This thread must live longer than the child, because a child that asked
// to die with its parent dies with the thread that started it.
class ChildProcess : public std::enable_shared_from_this<ChildProcess> {
 public:
  // A very long line arrives in pieces. Each piece after the first says that it continues the line.
  struct Events {
    std::function<void(const std::string& line)> standard_output;
    std::function<void(const std::string& line)> standard_error;
    // The last call, after all lines. The status is from waitpid.
    std::function<void(int wait_status)> exited;
  };

  // `command[0]` is the path of the executable. Standard input is empty. UNAVAILABLE: the child
  // cannot be started.
  static absl::StatusOr<std::shared_ptr<ChildProcess>> Start(
      boost::asio::io_context& io, const std::vector<std::string>& command, Events events);
  // Kills and reaps a child that is still running.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // Sends SIGKILL to the child and to every process that it started.
  void Kill() const;

 private:
  // One of the child's two outputs, split into lines.
  struct Output {
    explicit Output(boost::asio::io_context& io) : pipe(io) {}
    boost::asio::posix::stream_descriptor pipe;
    std::string partial;
    bool is_continued = false;  // the beginning of the line was passed on already
    std::function<void(const std::string& line)> on_line;
  };

  ChildProcess(boost::asio::io_context& io, Events events);

  void WaitForOutput(Output& output);
  // Reads the available data without waiting. Returns false at the end of the stream.
  bool ReadLines(Output& output);
  static void GiveOut(Output& output);
  static void EndLine(Output& output);
  void WaitForExit();
  void CheckExit();

  pid_t pid_ = -1;  // -1 after the child was reaped
  boost::asio::signal_set child_signals_;
  Output output_;
  Output error_;
  std::function<void(int)> on_exit_;
};

// Returns, for example, "exited with status 1" or "was killed by signal 9 (Killed)".
std::string DescribeExit(int wait_status);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_SUPERVISOR_CHILD_PROCESS_H_
