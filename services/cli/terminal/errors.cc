#include "services/cli/terminal/errors.h"

#include <string>

#include "services/cli/terminal/palette.h"

namespace tandem::cli {

namespace {

void PrintLine(const std::string& text, Console& console) {
  // A message may repeat what a file or a server said.
  console.err << "error: " << VisibleText(text) << std::endl;
}

}  // namespace

int ExitCode(const absl::Status& status) {
  if (absl::IsCancelled(status)) return kExitInterrupted;
  return absl::IsInvalidArgument(status) ? kExitUsage : kExitServerError;
}

int PrintError(const absl::Status& status, Console& console) {
  if (absl::IsCancelled(status)) {
    console.err << "interrupted" << std::endl;
  } else {
    PrintLine(std::string(status.message()), console);
  }
  return ExitCode(status);
}

int PrintServerError(const absl::Status& status, Console& console) {
  if (absl::IsCancelled(status)) return PrintError(status, console);
  PrintLine(absl::StatusCodeToString(status.code()) + ": " + std::string(status.message()),
            console);
  return kExitServerError;
}

}  // namespace tandem::cli
