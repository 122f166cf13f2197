// Draft tokens that were found in a text, and not drawn from a distribution.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_LOOKUP_DRAFT_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_LOOKUP_DRAFT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "services/router/drafting/drafter_set.h"

namespace tandem {

struct LookupDraft {
  Drafter drafter = Drafter::kSuffix;  // where it was found
  std::vector<int32_t> token_ids;  // a chain that continues the committed tokens; empty: none found
  uint32_t match_length = 0;       // tokens before it that agree with the place where it was found
};

// Drafts with longer matches are accepted more often. Acceptance is counted by class.
inline constexpr size_t kNumMatchClasses = 4;
inline size_t MatchClass(uint32_t match_length) {
  if (match_length <= 3) return 0;
  if (match_length <= 6) return 1;
  return match_length <= 16 ? 2 : 3;
}

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_LOOKUP_DRAFT_H_
