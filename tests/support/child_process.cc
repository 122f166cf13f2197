#include "tests/support/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <thread>

namespace tandem::testing {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::filesystem::path Executable(const std::string& name) {
  return std::filesystem::path(TANDEM_BINARY_DIR) / "bin" / name;
}

ChildProcess::ChildProcess(const std::vector<std::string>& command,
                           const std::vector<std::string>& environment) {
  std::array<int, 2> pipe_fds;
  if (pipe2(pipe_fds.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);

  std::vector<std::string> arguments = command;
  std::vector<std::string> variables = environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    variables.emplace_back(*variable);  // if names are equal, the first one counts
  }
  const int error = posix_spawn(&pid_, command[0].c_str(), &actions, nullptr,
                                Pointers(arguments).data(), Pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_fds[1]);
  output_fd_ = pipe_fds[0];
  if (error != 0) {
    close(output_fd_);
    throw std::runtime_error("cannot start " + command[0] + ": " + std::strerror(error));
  }
}

ChildProcess::~ChildProcess() {
  Signal(SIGTERM);
  if (!Wait(std::chrono::seconds(5))) {
    Signal(SIGKILL);
    Wait(std::chrono::seconds(5));
  }
  close(output_fd_);
}

bool ChildProcess::ReadMore(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  pollfd poll_fd = {output_fd_, POLLIN, 0};
  const int ready = poll(&poll_fd, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
  if (ready == 0) throw std::runtime_error("no answer in time; it printed: " + output_);
  if (ready < 0) return errno == EINTR;
  std::array<char, 4096> buffer;
  const ssize_t count = read(output_fd_, buffer.data(), buffer.size());
  if (count <= 0) return false;
  output_.append(buffer.data(), static_cast<size_t>(count));
  return true;
}

std::string ChildProcess::WaitForLine(const std::string& prefix,
                                      std::chrono::milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  while (true) {
    for (size_t end; (end = output_.find('\n', line_start_)) != std::string::npos;) {
      const std::string line = output_.substr(line_start_, end - line_start_);
      line_start_ = end + 1;
      if (line.starts_with(prefix)) return line.substr(prefix.size());
    }
    if (!ReadMore(deadline)) {
      throw std::runtime_error("it ended before a line with '" + prefix +
                               "'; it printed: " + output_);
    }
  }
}

std::string ChildProcess::ReadAll(std::chrono::milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  while (ReadMore(deadline)) {
  }
  return output_;
}

void ChildProcess::Signal(int signal) {
  if (!exit_code_) kill(pid_, signal);
}

std::optional<int> ChildProcess::Wait(std::chrono::milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  while (!exit_code_) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    } else if (Clock::now() >= deadline) {
      break;
    } else {
      std::this_thread::sleep_for(
          std::chrono::milliseconds(2));  // POSIX has no waitpid with a deadline
    }
  }
  return exit_code_;
}

}  // namespace tandem::testing
