#include "services/router/engine/rounds/lookup_round.h"

#include <algorithm>
#include <utility>

namespace tandem {

bool FeedLookups(uint32_t cohort, Slots* slots) {
  constexpr size_t kFewTokens = 64;
  size_t left = kLookupTokensPerEvent;
  bool any = false;
  for (const bool few : {true, false}) {
    for (uint32_t id = 0; id < slots->size(); ++id) {
      const RouterSlot& slot = (*slots)[id];
      if (slot.sequence == nullptr || slot.cohort != cohort || slot.sequence->lookups == nullptr) {
        continue;
      }
      any = true;
      RequestLookups& lookups = *slot.sequence->lookups;
      const auto tokens = slot.sequence->tokens();
      if ((lookups.num_behind(tokens) <= kFewTokens) == few) left -= lookups.Advance(tokens, left);
    }
  }
  return any;
}

bool SendSearch(RoundState& state, uint32_t index, double now) {
  // A search that takes longer than a round has its answer in a later one.
  constexpr double kShareOfRound = 0.05;
  constexpr double kLongestWait = 0.002;
  // The router's clock of events has steps of a millisecond, so a shorter wait takes longer.
  constexpr double kShortestWait = 0.001;
  // A search without an answer for so long has failed, or its answer comes late.
  constexpr double kSearchLimit = 1;
  Cohort& cohort = state.cohorts[index];
  if (!state.options.has_corpus) return false;
  if (cohort.search != 0 && now < cohort.search_until + kSearchLimit) return false;
  SearchCorpus search;
  bool awaited = false;
  for (uint32_t id = 0; id < state.slots.size(); ++id) {
    const RouterSlot& slot = state.slots[id];
    if (slot.sequence == nullptr || slot.cohort != index || slot.sequence->lookups == nullptr) {
      continue;
    }
    RetrievalLookup* retrieval = slot.sequence->lookups->retrieval();
    const std::span<const int32_t> tokens = slot.sequence->tokens();
    if (retrieval == nullptr || !retrieval->WantsSearch(tokens)) continue;
    retrieval->OnSearch(tokens.size());
    // While a prompt is computed, there is time to search for its end.
    awaited =
        awaited || (state.slots.Lack(kVerifierPeer, id) == 1 && retrieval->is_worth_waiting_for() &&
                    slot.sequence->lookups->FindLongest(tokens, 1).token_ids.empty());
    const auto context = tokens.last(std::min(tokens.size(), RetrievalLookup::kContextTokens));
    search.queries.push_back(
        {id, slot.sequence->serial, tokens.size(), {context.begin(), context.end()}});
  }
  if (search.queries.empty()) return false;
  search.session = state.slots.verifier().session();
  search.cohort = index;
  search.id = cohort.search = state.workers.NextCommandId();
  state.out.commands.push_back(std::move(search));
  const double wait =
      std::min(kShareOfRound * state.verifier_times.decode_seconds.value(), kLongestWait);
  cohort.search_until = now + wait;
  return awaited && wait >= kShortestWait;
}

void TakeAnswers(RoundState& state, const SearchCorpus& search, std::vector<CorpusAnswer> answers,
                 double now) {
  Cohort& cohort = state.cohorts[search.cohort];
  if (cohort.search == search.id) {
    cohort.search = 0;
    cohort.search_until = std::min(cohort.search_until, now);
  }
  for (CorpusAnswer& answer : answers) {
    Sequence* sequence = state.slots.Find(answer.slot, answer.serial);
    if (sequence == nullptr || sequence->lookups == nullptr) continue;
    if (RetrievalLookup* retrieval = sequence->lookups->retrieval(); retrieval != nullptr) {
      retrieval->OnFound(answer.length, std::move(answer.draft));
    }
  }
}

Proposal ProposeFound(const Sequence& sequence, LookupDraft draft, uint32_t length) {
  Proposal proposal;
  proposal.serial = sequence.serial;
  proposal.drafter = draft.drafter;
  proposal.match_length = draft.match_length;
  proposal.heads_version = sequence.lookups->self_version();
  draft.Keep(length);
  draft.PutPathsTogether();
  proposal.token_ids = std::move(draft.token_ids);
  proposal.parents = std::move(draft.parents);
  proposal.beliefs = std::move(draft.beliefs);
  return proposal;
}

}  // namespace tandem
