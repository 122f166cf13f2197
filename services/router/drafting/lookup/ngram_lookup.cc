#include "services/router/drafting/lookup/ngram_lookup.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace tandem {

namespace {

// Places that are counted for one draft token, the newest ones first.
constexpr size_t kMaxContinuations = 64;

struct CountedToken {
  int32_t token_id;
  uint32_t count;
};

// The tokens that followed one context, the newest first.
class Continuations {
 public:
  void Clear() { num_ = num_places_ = 0; }
  bool full() const { return num_places_ == kMaxContinuations; }
  void Add(int32_t token_id) {
    ++num_places_;
    const auto end = found_.begin() + static_cast<ptrdiff_t>(num_);
    const auto known = std::find_if(
        found_.begin(), end, [&](const CountedToken& one) { return one.token_id == token_id; });
    if (known != end) {
      ++known->count;
    } else {
      found_[num_++] = {token_id, 1};
    }
  }
  // PRECOND: one was added.
  int32_t MostFrequent() const {
    return std::max_element(found_.begin(), found_.begin() + static_cast<ptrdiff_t>(num_),
                            [](const CountedToken& a, const CountedToken& b) {
                              return a.count < b.count;  // the first of equals is the newest
                            })
        ->token_id;
  }

 private:
  std::array<CountedToken, kMaxContinuations> found_;
  size_t num_ = 0;
  size_t num_places_ = 0;
};

// The last tokens of text and draft, the newest first.
class Context {
 public:
  Context(std::span<const int32_t> text, std::span<const int32_t> draft)
      : text_(text), draft_(draft) {}
  size_t size() const { return text_.size() + draft_.size(); }
  int32_t operator[](size_t back) const {
    return back < draft_.size() ? draft_[draft_.size() - 1 - back]
                                : text_[text_.size() - 1 - (back - draft_.size())];
  }

 private:
  std::span<const int32_t> text_;
  std::span<const int32_t> draft_;
};

}  // namespace

LookupDraft FindByNgram(std::span<const int32_t> tokens, uint32_t max_tokens,
                        const NgramOptions& options) {
  LookupDraft draft;
  draft.drafter = Drafter::kNgram;
  const std::span<const int32_t> text =
      tokens.last(std::min<size_t>(tokens.size(), options.history));
  Continuations continuations;
  while (draft.token_ids.size() < max_tokens) {
    const Context context(text, draft.token_ids);
    const size_t most_order = std::min<size_t>(options.most_order, context.size());
    size_t order = options.least_order;
    continuations.Clear();
    bool found = false;
    // text[at] follows a place that may agree with the context.
    for (size_t at = text.size(); at-- > 1;) {
      if (text[at - 1] != context[0]) continue;
      size_t length = 1;
      while (length < most_order && length < at && text[at - 1 - length] == context[length]) {
        ++length;
      }
      if (length < order) continue;
      if (length > order) {
        order = length;
        continuations.Clear();
      }
      if (continuations.full()) {
        if (order == most_order) break;
        continue;  // a longer context may still come
      }
      continuations.Add(text[at]);
      found = true;
    }
    if (!found) break;
    if (draft.token_ids.empty()) draft.match_length = static_cast<uint32_t>(order);
    draft.token_ids.push_back(continuations.MostFrequent());
  }
  return draft;
}

}  // namespace tandem
