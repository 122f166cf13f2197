// The suffix drafter: copies what followed the place that agrees longest with the end of a request.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_SUFFIX_LOOKUP_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_SUFFIX_LOOKUP_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "services/router/drafting/lookup/lookup_draft.h"
#include "services/router/drafting/lookup/match_index.h"

namespace tandem {

// The lookup of one request in its own prompt and output.
class SuffixLookup {
 public:
  explicit SuffixLookup(size_t expected_tokens) : index_(expected_tokens) {}

  // Takes over new committed tokens, at most `most` of them, and returns how many it took. PRECOND:
  // earlier calls had a prefix of `tokens`.
  size_t Advance(std::span<const int32_t> tokens, size_t most);

  // Drafts tokens after `tokens`. Where the copied text ends, the copy goes on with itself, so that
  // a loop is continued. A tree has the continuations of other places that agree too. Returns a
  // draft without tokens if nothing was found, or if Advance has not taken over all tokens yet.
  LookupDraft Find(std::span<const int32_t> tokens, const LookupLimits& limits) const;

  // Number of tokens that were taken over.
  size_t size() const { return index_.size(); }
  size_t memory_bytes() const { return index_.memory_bytes(); }

 private:
  MatchIndex index_;
  // The place that is being copied from. It is kept while the text goes on like it, even if the
  // index would find a newer place, and however long the copy is.
  TextMatch following_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_SUFFIX_LOOKUP_H_
