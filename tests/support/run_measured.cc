// run_measured COMMAND...: runs it and prints, as the last line of standard output, one line of
// JSON with its exit code (128 + signal when killed), the seconds it took, and the peak resident
// memory in KiB of it and the children it waited for. A process of its own because Linux counts the
// memory of whoever calls exec() towards the new program's peak: seen from Python, a program of 3
// MiB peaks at Python's 60.
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: run_measured COMMAND...\n", stderr);
    return 2;
  }
  const auto start = std::chrono::steady_clock::now();
  pid_t pid = 0;
  if (posix_spawn(&pid, argv[1], nullptr, nullptr, argv + 1, environ) != 0) {
    std::perror(argv[1]);
    return 2;
  }
  int status = 0;
  rusage usage = {};
  wait4(pid, &status, 0, &usage);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("{\"exit_code\": %d, \"seconds\": %.3f, \"peak_kib\": %ld}\n",
              WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), seconds.count(),
              usage.ru_maxrss);
  return 0;
}
