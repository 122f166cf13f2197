#include "services/cli/supervisor/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/status.h"

namespace tandem::cli {

namespace {

// A longer line is passed on in pieces, so that a child cannot make the supervisor grow.
constexpr size_t kMaxLineBytes = 16 << 10;
// Marks each piece after the first. Without this mark, a text that a client wrote into the middle
// of a long line could appear at the start of a line, like a line of the child's own.
constexpr char kContinued[] = "… (continued) ";

struct Pipe {
  int read = -1;
  int write = -1;
};

bool Open(Pipe& pipe) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return false;
  pipe = {fds[0], fds[1]};
  return fcntl(pipe.read, F_SETFL, O_NONBLOCK) == 0;
}

void Close(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

// posix_spawn, unlike fork, is safe while gRPC's threads run.
int Spawn(const std::vector<std::string>& command, int out_fd, int err_fd, pid_t* pid) {
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out_fd, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, err_fd, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);

  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  sigset_t to_default;
  sigemptyset(&to_default);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD}) sigaddset(&to_default, signal);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &to_default);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  const int error = posix_spawn(pid, arguments[0], &files, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

}  // namespace

ChildProcess::ChildProcess(boost::asio::io_context& io, Events events)
    : child_signals_(io), output_(io), error_(io), on_exit_(std::move(events.exited)) {
  output_.on_line = std::move(events.standard_output);
  error_.on_line = std::move(events.standard_error);
}

absl::StatusOr<std::shared_ptr<ChildProcess>> ChildProcess::Start(
    boost::asio::io_context& io, const std::vector<std::string>& command, Events events) {
  std::shared_ptr<ChildProcess> child(new ChildProcess(io, std::move(events)));
  // Waiting for SIGCHLD begins before the child starts, so that no signal is missed.
  boost::system::error_code signal_error;
  child->child_signals_.add(SIGCHLD, signal_error);
  if (signal_error) return Internal("cannot wait for SIGCHLD: " + signal_error.message());

  Pipe out;
  Pipe err;
  int error = Open(out) && Open(err) ? 0 : errno;
  if (error == 0) error = Spawn(command, out.write, err.write, &child->pid_);
  Close(out.write);
  Close(err.write);
  if (error != 0) {
    child->pid_ = -1;
    Close(out.read);
    Close(err.read);
    return Unavailable("cannot start " + command[0] + ": " + std::strerror(error));
  }
  child->output_.pipe.assign(out.read);
  child->error_.pipe.assign(err.read);
  child->WaitForOutput(child->output_);
  child->WaitForOutput(child->error_);
  child->WaitForExit();
  return child;
}

ChildProcess::~ChildProcess() {
  if (pid_ < 0) return;
  Kill();
  waitpid(pid_, nullptr, 0);
}

void ChildProcess::Signal(int signal) const {
  if (pid_ > 0) kill(pid_, signal);
}

void ChildProcess::Kill() const {
  if (pid_ > 0) kill(-pid_, SIGKILL);
}

void ChildProcess::WaitForOutput(Output& output) {
  output.pipe.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                         [self = shared_from_this(), &output](const auto& error) {
                           if (error || self->pid_ < 0) return;
                           if (self->ReadLines(output)) self->WaitForOutput(output);
                         });
}

bool ChildProcess::ReadLines(Output& output) {
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t count = read(output.pipe.native_handle(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN;
    if (count == 0) return false;
    for (const char c : std::string(buffer.data(), count)) {
      if (c != '\n') output.partial += c;
      if (c == '\n') {
        EndLine(output);
      } else if (output.partial.size() == kMaxLineBytes) {
        GiveOut(output);
        output.is_continued = true;
      }
    }
  }
}

void ChildProcess::GiveOut(Output& output) {
  const std::string piece = std::exchange(output.partial, {});
  output.on_line(output.is_continued ? kContinued + piece : piece);
}

void ChildProcess::EndLine(Output& output) {
  // Nothing is left of a line that ends exactly where a piece ended.
  if (!output.is_continued || !output.partial.empty()) GiveOut(output);
  output.is_continued = false;
}

void ChildProcess::WaitForExit() {
  child_signals_.async_wait([self = shared_from_this()](const auto& error, int /*signal*/) {
    if (error || self->pid_ < 0) return;
    self->CheckExit();
  });
}

void ChildProcess::CheckExit() {
  siginfo_t info{};
  if (waitid(P_PID, pid_, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
    WaitForExit();  // another child's signal
    return;
  }
  // Until the child is reaped, no other process or group can get its id.
  Kill();
  int status = 0;
  waitpid(std::exchange(pid_, -1), &status, 0);
  for (Output* output : {&output_, &error_}) {
    ReadLines(*output);
    if (!output->partial.empty()) EndLine(*output);
  }
  boost::system::error_code ignored;
  output_.pipe.close(ignored);
  error_.pipe.close(ignored);
  child_signals_.clear(ignored);
  std::exchange(on_exit_, nullptr)(status);
}

std::string DescribeExit(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    return "was killed by signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
  }
  return "exited with status " + std::to_string(WEXITSTATUS(wait_status));
}

}  // namespace tandem::cli
