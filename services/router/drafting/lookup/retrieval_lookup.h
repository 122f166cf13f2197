// The retrieval drafter of one request: copies what followed the end of its text in a corpus.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_RETRIEVAL_LOOKUP_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_RETRIEVAL_LOOKUP_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "services/router/drafting/lookup/lookup_draft.h"

namespace tandem {

// A search may wait for the disk, so another thread searches the corpus, and its answer comes
// later. It still serves if the text has gone on like it meanwhile.
class RetrievalLookup {
 public:
  // Tokens at the end of the text that a search gets, and tokens that it is asked for.
  static constexpr size_t kContextTokens = 32;
  static constexpr uint32_t kWantedTokens = 32;
  // Tokens of the tree that it is asked for.
  static constexpr uint32_t kWantedNodes = 96;

  // Returns true if the corpus is to be searched for the end of `tokens`. While nothing is found or
  // accepted, this is true less and less often: down to once in 32 rounds.
  bool WantsSearch(std::span<const int32_t> tokens) const;
  // Returns true if a round should wait a little for an answer: the last search found something,
  // and the last draft was accepted in part.
  bool is_worth_waiting_for() const { return failures_ == 0; }
  // The corpus is searched for the end of a text of `length` tokens.
  void OnSearch(size_t length);
  // The answer to such a search. A draft without tokens: nothing was found.
  void OnFound(size_t length, LookupDraft found);

  // Drafts tokens after `tokens`: a tree where the corpus goes on in several ways. Returns a draft
  // without tokens if no answer fits.
  LookupDraft Find(std::span<const int32_t> tokens, const LookupLimits& limits) const;

  // One round of the request has ended. `num_drafted`: tokens of this drafter that were judged.
  void OnRound(uint32_t num_drafted, uint32_t num_accepted);

 private:
  static constexpr uint32_t kFreeFailures = 4;
  static constexpr uint32_t kLongestGap = 32;
  // A copy with fewer tokens left is searched for anew.
  static constexpr uint32_t kFewTokens = 8;

  size_t searched_length_ = 0;  // length of the text at the last search
  size_t found_length_ = 0;     // length of the text that `found_` continues
  LookupDraft found_;
  bool is_judged_ = true;      // nothing was found, or a draft was judged, since the last search
  uint32_t failures_ = 0;      // searches in a row that led to no accepted token
  uint32_t rounds_since_ = 0;  // rounds since the last search
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_RETRIEVAL_LOOKUP_H_
