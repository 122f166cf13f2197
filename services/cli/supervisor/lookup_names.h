// The drafters that need no draft worker, by their names in the API.
#ifndef TANDEM_SERVICES_CLI_SUPERVISOR_LOOKUP_NAMES_H_
#define TANDEM_SERVICES_CLI_SUPERVISOR_LOOKUP_NAMES_H_

#include <algorithm>
#include <array>
#include <string_view>

namespace tandem {

inline constexpr std::array<std::string_view, 5> kLookupNames = {"prediction", "suffix", "ngram",
                                                                 "recycling", "retrieval"};

// Those that live in the verifier, beside the target.
inline constexpr std::array<std::string_view, 5> kSelfDrafterNames = {
    "medusa", "blockwise", "eagle", "layer_skip", "pass"};

inline bool IsSelfDrafter(std::string_view drafter) {
  return std::find(kSelfDrafterNames.begin(), kSelfDrafterNames.end(), drafter) !=
         kSelfDrafterNames.end();
}

inline bool IsLookup(std::string_view drafter) {
  return std::find(kLookupNames.begin(), kLookupNames.end(), drafter) != kLookupNames.end();
}

}  // namespace tandem

#endif  // TANDEM_SERVICES_CLI_SUPERVISOR_LOOKUP_NAMES_H_
