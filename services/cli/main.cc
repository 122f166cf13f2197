// `tandem`: command line and supervisor.
#include <signal.h>
#include <unistd.h>

#include <iostream>
#include <string>
#include <vector>

#include "common/log/log.h"
#include "services/cli/run.h"

int main(int argc, char** argv) {
  // When the reader of our output closes it, writes must fail. The signal would end this process
  // before its children.
  signal(SIGPIPE, SIG_IGN);
  tandem::SetUpLog({.process = "tandem"});  // sends the logs of our libraries to standard error
  tandem::cli::Console console = {.in = std::cin,
                                  .out = std::cout,
                                  .err = std::cerr,
                                  .out_is_terminal = isatty(STDOUT_FILENO) == 1,
                                  .err_is_terminal = isatty(STDERR_FILENO) == 1};
  return tandem::cli::Run(std::vector<std::string>(argv + 1, argv + argc), console);
}
