// The n-gram drafter: what followed the last few tokens most often.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_NGRAM_LOOKUP_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_NGRAM_LOOKUP_H_

#include <cstdint>
#include <span>

#include "services/router/drafting/lookup/lookup_draft.h"

namespace tandem {

struct NgramOptions {
  uint32_t least_order = 2;  // shortest context, in tokens, >= 1
  uint32_t most_order = 4;   // longest context that is compared
  uint32_t history = 512;    // newest tokens of prompt and output that are looked at
};

// Drafts up to `max_tokens` tokens after `tokens`, the committed tokens of a request. Each draft
// token is the one that followed the longest context most often, and of equals the one that
// followed it last. The next one is found with the draft tokens as part of the context, but draft
// tokens are never counted as text. Nothing is stored. The time is at most in proportion to
// history * max_tokens. Returns a draft without tokens if nothing was found.
LookupDraft FindByNgram(std::span<const int32_t> tokens, uint32_t max_tokens,
                        const NgramOptions& options);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_NGRAM_LOOKUP_H_
