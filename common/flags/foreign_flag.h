// Flags of vLLM, llama.cpp and transformers that people try first.
#ifndef TANDEM_COMMON_FLAGS_FOREIGN_FLAG_H_
#define TANDEM_COMMON_FLAGS_FOREIGN_FLAG_H_

#include <span>
#include <string>
#include <string_view>

#include "common/flags/flag.h"

namespace tandem {

// A flag of another server, and what stands for it here.
struct ForeignFlag {
  std::string_view name;     // "--port", or "-m"
  std::string_view flag;     // "--listen"; empty: there is none
  std::string_view comment;  // how the values differ, or why there is no such flag; may be empty
};

// Returns the table. docs/guides/coming-from.md has the same facts for people who read first.
std::span<const ForeignFlag> ForeignFlags();

// Returns "; here it is --listen (HOST:PORT; see docs/guides/coming-from.md)" for a flag of another
// server that has a counterpart in the program. Empty: the word is no such flag.
std::string ForeignFlagHint(std::string_view word, Program program);

}  // namespace tandem

#endif  // TANDEM_COMMON_FLAGS_FOREIGN_FLAG_H_
