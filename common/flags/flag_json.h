// The table of flags as JSON, from which the guide is made.
#ifndef TANDEM_COMMON_FLAGS_FLAG_JSON_H_
#define TANDEM_COMMON_FLAGS_FLAG_JSON_H_

#include <string>

namespace tandem {

// Returns {"flags": [...]}, with one object for each flag, in the order of the table. Fields that
// do not apply are left out:
//
//   name, short_name, negation, group, kind ("switch", "text", "choice", "integer", "number" or
//   "bytes"), value, values ("one", "commas" or "repeated"), required, default, computed_default,
//   minimum, exclusive_minimum, maximum, or_zero, words, allowed, help
//   programs: {"tandem-router": "TANDEM_MAX_QUEUE"}, the programs that take the flag, each with the
//     environment variable that sets the flag there, or with "" where there is none
//   handed_to: {"tandem-draft": "--kv-cache-bytes"}, the processes to which `tandem serve` hands
//     the flag, each with its name there
std::string FlagTableJson();

}  // namespace tandem

#endif  // TANDEM_COMMON_FLAGS_FLAG_JSON_H_
