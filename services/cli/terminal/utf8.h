// Checks text before it is put into a protobuf string, which must be UTF-8.
#ifndef TANDEM_SERVICES_CLI_TERMINAL_UTF8_H_
#define TANDEM_SERVICES_CLI_TERMINAL_UTF8_H_

#include <cstddef>
#include <string>

namespace tandem::cli {

// Returns the number of bytes at the start of `text` that are valid UTF-8. This is the size of
// `text` if all bytes are valid.
size_t ValidUtf8Prefix(const std::string& text);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_TERMINAL_UTF8_H_
