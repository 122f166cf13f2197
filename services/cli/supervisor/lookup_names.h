// The drafters that need no draft model, by their names in the API.
#ifndef TANDEM_SERVICES_CLI_SUPERVISOR_LOOKUP_NAMES_H_
#define TANDEM_SERVICES_CLI_SUPERVISOR_LOOKUP_NAMES_H_

#include <algorithm>
#include <array>
#include <string_view>

namespace tandem {

inline constexpr std::array<std::string_view, 5> kLookupNames = {"prediction", "suffix", "ngram",
                                                                 "recycling", "retrieval"};

inline bool IsLookup(std::string_view drafter) {
  return std::find(kLookupNames.begin(), kLookupNames.end(), drafter) != kLookupNames.end();
}

}  // namespace tandem

#endif  // TANDEM_SERVICES_CLI_SUPERVISOR_LOOKUP_NAMES_H_
