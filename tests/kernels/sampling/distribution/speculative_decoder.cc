#include "tests/kernels/sampling/distribution/speculative_decoder.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/token_hash.h"
#include "kernels/sampling/accept_reject.h"
#include "kernels/sampling/draw.h"

namespace tandem::testing {
namespace {

constexpr uint8_t kDrafterNumber = 1;

}  // namespace

int32_t MixedDraftLength(uint64_t seed, int32_t round) {
  return 1 + static_cast<int32_t>(ExtendTokenHash(seed, round) % 4);
}

SpeculativeDecoder::SpeculativeDecoder(SyntheticModel target, std::optional<Drafter> drafter,
                                       DraftLength draft_length)
    : target_(std::move(target)),
      drafter_(std::move(drafter)),
      draft_length_(std::move(draft_length)),
      vocabulary_size_(target_.vocabulary_size()) {}

void SpeculativeDecoder::Propose(const SamplingParams& params, int32_t draft_length) {
  SamplingParams draft_params = params;
  if (drafter_->one_hot) draft_params.temperature = 0;
  const bool has_rows = !draft_params.greedy() && !params.reproducible;
  draft_log_probs_.resize(has_rows ? draft_length * vocabulary_size_ : 0);
  for (int32_t i = 0; i < draft_length; ++i) {
    drafter_->model.Logits(sequence_, logits_);
    const std::span<float> row =
        has_rows ? std::span(draft_log_probs_).subspan(i * vocabulary_size_, vocabulary_size_)
                 : std::span<float>();
    const auto num_output_tokens = static_cast<int32_t>(sequence_.size() - std::size(kPrompt));
    const DrawKey key{.seed = params.seed, .position = sequence_.size(), .drafter = kDrafterNumber};
    const DraftDraw draw =
        DrawDraftToken(std::span<const float>(logits_).first(vocabulary_size_), draft_params,
                       counts_, num_output_tokens, key, row, scratch_);
    draft_.push_back(draw.token_id);
    sequence_.push_back(draw.token_id);
    counts_.Add(draw.token_id, /*is_output=*/true);
  }
  for (int32_t id : draft_) counts_.Remove(id, /*is_output=*/true);
  sequence_.resize(sequence_.size() - draft_.size());
}

const std::vector<int32_t>& SpeculativeDecoder::Generate(const SamplingParams& params,
                                                         int32_t num_tokens) {
  sequence_.assign(std::begin(kPrompt), std::end(kPrompt));
  counts_.Clear();
  for (int32_t id : kPrompt) counts_.Add(id, /*is_output=*/false);
  output_.clear();
  scratch_.resize(vocabulary_size_);
  for (int32_t round = 0; static_cast<int32_t>(output_.size()) < num_tokens; ++round) {
    const auto left = num_tokens - static_cast<int32_t>(output_.size());
    const int32_t draft_length = drafter_ ? std::min(draft_length_(params.seed, round), left) : 0;
    logits_.resize((draft_length + 1) * vocabulary_size_);
    draft_.clear();
    if (draft_length > 0) Propose(params, draft_length);

    const size_t committed = sequence_.size();
    for (int32_t i = 0; i <= draft_length; ++i) {
      target_.Logits(sequence_, std::span(logits_).subspan(i * vocabulary_size_, vocabulary_size_));
      if (i < draft_length) sequence_.push_back(draft_[i]);
    }
    sequence_.resize(committed);

    AcceptRejectArgs args;
    args.target_logits = logits_.data();
    args.logits_stride = vocabulary_size_;
    args.vocabulary_size = vocabulary_size_;
    args.draft_token_ids = draft_;
    args.draft_log_probs =
        draft_length > 0 && !draft_log_probs_.empty() ? draft_log_probs_.data() : nullptr;
    args.params = &params;
    args.counts = &counts_;
    args.num_output_tokens = static_cast<int32_t>(output_.size());
    args.position = committed;
    args.drafter = drafter_ ? kDrafterNumber : 0;
    const BlockVerdict verdict = AcceptReject(args);

    num_accepted_ += verdict.num_accepted();
    num_tested_ += std::min(verdict.num_accepted() + 1, draft_length);
    draft_.resize(verdict.num_accepted());
    draft_.push_back(verdict.next_token_id);
    for (int32_t id : draft_) {
      sequence_.push_back(id);
      output_.push_back(id);
      counts_.Add(id, /*is_output=*/true);
    }
  }
  output_.resize(num_tokens);  // cuts a bonus past the end
  return output_;
}

}  // namespace tandem::testing
