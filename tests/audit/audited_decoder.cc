#include "tests/audit/audited_decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/sampling/accept_reject.h"
#include "kernels/sampling/draw.h"
#include "kernels/sampling/reference.h"
#include "kernels/sampling/transform/transform.h"

namespace tandem::testing {
namespace {

constexpr int32_t kMostDrafted = 4;
constexpr size_t kOutputTokens = 48;

std::vector<double> ProbsOf(std::span<const float> log_probs) {
  std::vector<double> probs;
  for (float x : log_probs) probs.push_back(std::exp(static_cast<double>(x)));
  return probs;
}

}  // namespace

AuditedDecoder::AuditedDecoder(AuditScenario scenario, uint64_t random_seed)
    : scenario_(std::move(scenario)),
      random_(random_seed),
      vocabulary_size_(scenario_.target.vocabulary_size()),
      scratch_(vocabulary_size_) {
  scenario_.params.audit = true;
  if (scenario_.mistake == Mistake::kLenience) scenario_.params.lenience = 0.7f;
  StartRequest();
}

void AuditedDecoder::StartRequest() {
  scenario_.params.seed = random_();
  sequence_.clear();
  counts_.Clear();
  for (int i = 0; i < 3; ++i) {
    sequence_.push_back(static_cast<int32_t>(random_() % vocabulary_size_));
    counts_.Add(sequence_.back(), /*is_output=*/false);
  }
  prompt_length_ = sequence_.size();
}

void AuditedDecoder::Propose(int32_t draft_length) {
  SamplingParams params = scenario_.params;
  if (scenario_.one_hot_drafter) params.temperature = 0;
  draft_log_probs_.resize(draft_length * vocabulary_size_);
  std::vector<float> logits(vocabulary_size_);
  for (int32_t i = 0; i < draft_length; ++i) {
    scenario_.drafter->Logits(sequence_, logits);
    const std::span<float> row =
        std::span(draft_log_probs_).subspan(i * vocabulary_size_, vocabulary_size_);
    const auto num_output_tokens = static_cast<int32_t>(sequence_.size() - prompt_length_);
    const DrawKey key{.seed = params.seed, .position = sequence_.size()};
    int32_t drawn =
        DrawDraftToken(logits, params, counts_, num_output_tokens, key, row, scratch_).token_id;
    if (scenario_.mistake == Mistake::kProposalSharesAcceptUniform) {
      drawn = DrawFromLogProbs(row, Uniform(key, DrawPurpose::kAccept));
    }
    if (scenario_.mistake == Mistake::kSharedGumbelNoise) {
      drawn = DrawCoupledReference(ProbsOf(row), key);
    }
    if (scenario_.mistake == Mistake::kDropsUnlikelyDrafts && row[drawn] < std::log(0.1f)) break;
    if (scenario_.mistake == Mistake::kDraftRowsBeforeTopK) {
      SamplingParams before_top_k = params;
      before_top_k.top_k = 0;
      LogProbs(logits, before_top_k, row);
    }
    draft_.push_back(drawn);
    sequence_.push_back(drawn);
    counts_.Add(drawn, /*is_output=*/true);
  }
  for (int32_t id : draft_) counts_.Remove(id, /*is_output=*/true);
  sequence_.resize(sequence_.size() - draft_.size());
}

void AuditedDecoder::ScoreBlock() {
  const size_t committed = sequence_.size();
  logits_.resize((draft_.size() + 1) * vocabulary_size_);
  for (size_t i = 0; i <= draft_.size(); ++i) {
    scenario_.target.Logits(sequence_,
                            std::span(logits_).subspan(i * vocabulary_size_, vocabulary_size_));
    if (i < draft_.size()) sequence_.push_back(draft_[i]);
  }
  sequence_.resize(committed);
}

void AuditedDecoder::Commit(int32_t token_id) {
  sequence_.push_back(token_id);
  counts_.Add(token_id, /*is_output=*/true);
}

void AuditedDecoder::JudgeByAcceptReject() {
  const bool has_rows = !draft_.empty() && !scenario_.one_hot_drafter;
  const BlockVerdict verdict =
      AcceptReject({.target_logits = logits_.data(),
                    .logits_stride = vocabulary_size_,
                    .vocabulary_size = vocabulary_size_,
                    .draft_token_ids = draft_,
                    .draft_log_probs = has_rows ? draft_log_probs_.data() : nullptr,
                    .params = &scenario_.params,
                    .counts = &counts_,
                    .num_output_tokens = static_cast<int32_t>(sequence_.size() - prompt_length_),
                    .position = sequence_.size(),
                    .drafter = 0});
  num_accepted_ += verdict.num_accepted();
  num_tested_ += std::min<int64_t>(verdict.num_accepted() + 1, static_cast<int64_t>(draft_.size()));
  for (int32_t i = 0; i < verdict.num_accepted(); ++i) Commit(draft_[i]);
  Commit(verdict.next_token_id);
  samples_ = verdict.audit;
}

int32_t AuditedDecoder::Recover(std::span<const double> p, std::span<const double> q,
                                uint64_t position) const {
  std::vector<double> residual = ResidualReference(p, q);
  const DrawKey key{.seed = scenario_.params.seed, .position = position};
  double u = Uniform(key, DrawPurpose::kResample);
  if (scenario_.mistake == Mistake::kResidualIsTarget) residual.assign(p.begin(), p.end());
  if (scenario_.mistake == Mistake::kResidualIsAbsoluteDifference) {
    for (size_t x = 0; x < p.size(); ++x) residual[x] = std::abs(p[x] - q[x]);
  }
  if (scenario_.mistake == Mistake::kSharedGumbelNoise) return DrawCoupledReference(residual, key);
  if (scenario_.mistake == Mistake::kSharedUniform) u = Uniform(key, DrawPurpose::kAccept);
  return DrawReference(residual, u);
}

// This step ignores penalties and masks.
void AuditedDecoder::JudgeByOwnStep() {
  std::vector<float> target_log_probs(vocabulary_size_);
  std::vector<double> p_before;
  for (size_t i = 0; i <= draft_.size(); ++i) {
    LogProbs(std::span(logits_).subspan(i * vocabulary_size_, vocabulary_size_), scenario_.params,
             target_log_probs);
    const std::vector<double> p = ProbsOf(target_log_probs);
    const DrawKey key{.seed = scenario_.params.seed, .position = sequence_.size()};
    if (i == draft_.size()) {
      const bool wrong_row = scenario_.mistake == Mistake::kBonusFromWrongRow && i > 0;
      const int32_t bonus =
          DrawReference(wrong_row ? p_before : p, Uniform(key, DrawPurpose::kBonus));
      samples_.push_back(SampleForAudit(target_log_probs, {}, /*drafted=*/{}, bonus, key));
      return Commit(bonus);
    }
    const std::span<const float> draft_log_probs =
        std::span(draft_log_probs_).subspan(i * vocabulary_size_, vocabulary_size_);
    const std::vector<double> q = ProbsOf(draft_log_probs);
    const int32_t drafted = draft_[i];
    const double u = Uniform(key, DrawPurpose::kAccept);
    const bool slips = scenario_.mistake == Mistake::kAcceptsAtEquality && u < 1.0 / 256;
    const bool accepted = u * q[drafted] < p[drafted] || (slips && p[drafted] == 0);
    const int32_t token_id = accepted ? drafted : Recover(p, q, sequence_.size());
    ++num_tested_;
    num_accepted_ += accepted ? 1 : 0;
    samples_.push_back(
        SampleForAudit(target_log_probs, draft_log_probs, {&drafted, 1}, token_id, key));
    Commit(token_id);
    if (!accepted) return;
    p_before = p;
  }
}

std::span<const AuditSample> AuditedDecoder::Round() {
  if (sequence_.size() >= prompt_length_ + kOutputTokens) StartRequest();
  draft_.clear();
  samples_.clear();
  // The choice depends only on the length, never on a draw.
  if (scenario_.drafter.has_value()) {
    Propose(1 + static_cast<int32_t>(sequence_.size()) % kMostDrafted);
  }
  ScoreBlock();
  if (scenario_.mistake < Mistake::kNoneInOwnStep) {
    JudgeByAcceptReject();
  } else {
    JudgeByOwnStep();
  }
  return samples_;
}

}  // namespace tandem::testing
