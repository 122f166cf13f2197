// A file of text that an option names.
#ifndef TANDEM_SERVICES_CLI_TERMINAL_TEXT_FILE_H_
#define TANDEM_SERVICES_CLI_TERMINAL_TEXT_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace tandem::cli {

// Returns the contents of the file at `path`. INVALID_ARGUMENT names `option` and says why there is
// no text: it cannot be read, is a folder, is empty, or is not UTF-8.
absl::StatusOr<std::string> ReadTextFile(const std::string& option, const std::string& path);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_TERMINAL_TEXT_FILE_H_
