// run_measured COMMAND... runs the command and prints one line of JSON as the last line of standard
// output. The line has the exit code (128 + signal if the command was killed), the seconds that it
// took, and the peak resident memory in KiB of the command and the children for which it waited.
//
// This is a separate small program, because Linux counts the memory of the process that calls
// exec() towards the new program's peak. If Python starts a program of 3 MiB, its peak is Python's
// 60 MiB.
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
