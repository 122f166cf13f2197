// The help text of a program, made from the table of flags.
#ifndef TANDEM_COMMON_FLAGS_FLAG_HELP_H_
#define TANDEM_COMMON_FLAGS_FLAG_HELP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/flags/flag.h"

namespace tandem {

// An argument without dashes, such as PROMPT.
struct ArgumentHelp {
  std::string name;
  std::string help;
};

// kShort: only the flags that people use most, if the program has more than a screen of them.
enum class HelpLength : uint8_t { kShort, kAll };

// `description` says what the program does. The text ends with a line break.
std::string HelpText(Program program, const std::string& description,
                     const std::vector<ArgumentHelp>& arguments, bool has_version,
                     HelpLength length);

// Returns the sentences of help texts and of the guide about the flag: its help, its limits and its
// default.
std::string FlagSentences(const Flag& flag);

}  // namespace tandem

#endif  // TANDEM_COMMON_FLAGS_FLAG_HELP_H_
