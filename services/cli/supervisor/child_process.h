// One child of the supervisor: started, listened to, ended.
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

// Runs in our process session, so that the session can be seen and ended as one, and in a process
// group of its own, so that Ctrl-C in a terminal reaches the supervisor alone and the order of
// stopping is the supervisor's to keep. Not thread-safe: everything, callbacks too, happens on the
// io_context's thread, which must live as long as the child (a child that asked to die with its
// parent dies with the thread that started it).
class ChildProcess : public std::enable_shared_from_this<ChildProcess> {
 public:
  // A line that is very long comes in pieces, which say that they go on with it.
  struct Events {
    std::function<void(const std::string& line)> standard_output;
    std::function<void(const std::string& line)> standard_error;
    // Last, once all lines were given out. The status is waitpid's.
    std::function<void(int wait_status)> exited;
  };

  // `command[0]` is the path of the executable. Standard input is empty. UNAVAILABLE when it cannot
  // be started.
  static absl::StatusOr<std::shared_ptr<ChildProcess>> Start(
      boost::asio::io_context& io, const std::vector<std::string>& command, Events events);
  // Kills and reaps a child that still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // SIGKILL to the child and whatever it started.
  void Kill() const;

 private:
  // One of its two outputs, cut into lines.
  struct Output {
    explicit Output(boost::asio::io_context& io) : pipe(io) {}
    boost::asio::posix::stream_descriptor pipe;
    std::string partial;
    bool is_continued = false;  // the beginning of the line was given out
    std::function<void(const std::string& line)> on_line;
  };

  ChildProcess(boost::asio::io_context& io, Events events);

  void WaitForOutput(Output& output);
  // Reads what is there without waiting; false at the end of the stream.
  bool ReadLines(Output& output);
  static void GiveOut(Output& output);
  static void EndLine(Output& output);
  void WaitForExit();
  void CheckExit();

  pid_t pid_ = -1;  // -1: reaped
  boost::asio::signal_set child_signals_;
  Output output_;
  Output error_;
  std::function<void(int)> on_exit_;
};

// "exited with status 1", "was killed by signal 9 (Killed)".
std::string DescribeExit(int wait_status);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_SUPERVISOR_CHILD_PROCESS_H_
