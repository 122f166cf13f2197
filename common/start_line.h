// The line that a process writes to its standard output when its start has succeeded or failed. A
// supervisor reads it.
#ifndef TANDEM_COMMON_START_LINE_H_
#define TANDEM_COMMON_START_LINE_H_

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tandem {

inline constexpr std::string_view kReadyPrefix = "ready: ";      // then the address
inline constexpr std::string_view kHttpPrefix = "http: ";        // the gateway's: then the address
inline constexpr std::string_view kRefusedPrefix = "refused: ";  // then why the process ends

inline void PrintStartLine(std::string_view prefix, std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::printf("%.*s%s\n", static_cast<int>(prefix.size()), prefix.data(), text.c_str());
  std::fflush(stdout);
}
inline void PrintReady(const std::string& address) { PrintStartLine(kReadyPrefix, address); }
inline void PrintRefusal(const absl::Status& status) {
  PrintStartLine(kRefusedPrefix, std::string(status.message()));
}

}  // namespace tandem

#endif  // TANDEM_COMMON_START_LINE_H_
