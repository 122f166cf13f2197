// A corpus for the retrieval drafter of tests, searched with plain loops.
#ifndef TANDEM_TESTS_ROUTER_TOY_CORPUS_H_
#define TANDEM_TESTS_ROUTER_TOY_CORPUS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/continuation_tree.h"
#include "services/router/engine/engine_command.h"
#include "services/router/engine/rounds/lookup_round.h"

namespace tandem::testing {

struct ToyCorpus {
  std::vector<std::vector<int32_t>> documents;

  // Merges what follows the first places where the last two tokens of the context stand.
  LookupDraft Find(std::span<const int32_t> context) const {
    LookupDraft draft;
    draft.drafter = Drafter::kRetrieval;
    if (context.size() < 2) return draft;
    const auto end = context.last(2);
    std::vector<Continuation> places;
    for (const std::vector<int32_t>& document : documents) {
      for (size_t i = 2; i < document.size() && places.size() < 8; ++i) {
        if (document[i - 2] != end[0] || document[i - 1] != end[1]) continue;
        places.push_back({{document.begin() + static_cast<ptrdiff_t>(i), document.end()}, 1});
      }
    }
    if (places.empty()) return draft;
    ContinuationTree tree =
        MergeContinuations(places, {.max_depth = RetrievalLookup::kWantedTokens, .max_nodes = 32});
    draft.match_length = 2;
    draft.token_ids = std::move(tree.token_ids);
    draft.parents = std::move(tree.parents);
    return draft;
  }

  std::vector<CorpusAnswer> Answer(const SearchCorpus& search) const {
    std::vector<CorpusAnswer> answers;
    for (const SearchCorpus::Query& query : search.queries) {
      answers.push_back({query.slot, query.serial, query.length, Find(query.context)});
    }
    return answers;
  }
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_ROUTER_TOY_CORPUS_H_
