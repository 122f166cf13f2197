#include "kernels/sampling/accept_reject.h"

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/sampling/audit_sample.h"
#include "kernels/sampling/draw.h"
#include "kernels/sampling/log_probs_report.h"
#include "kernels/sampling/random/inverse_cdf.h"
#include "kernels/sampling/transform/row_kernels.h"
#include "kernels/sampling/transform/transform.h"

namespace tandem {
namespace {

constexpr float kLogOfZero = -std::numeric_limits<float>::infinity();
constexpr int32_t kNoDraft = -1;  // the row after the last draft token: bonus or plain

struct Judgment {
  bool accepted = false;
  int32_t token_id = -1;  // the draft token, or the token that takes its place
};

// Adds accepted draft tokens to the context while a block is walked, and takes them back at its
// end.
class ContextWalk {
 public:
  explicit ContextWalk(const AcceptRejectArgs& args)
      : args_(args), counted_(HasPenalties(*args.params)) {}
  ~ContextWalk() {
    while (accepted_ > 0) Remove(args_.draft_token_ids[--accepted_]);
  }
  ContextWalk(const ContextWalk&) = delete;
  ContextWalk& operator=(const ContextWalk&) = delete;

  void Accept() {
    const int32_t token_id = args_.draft_token_ids[accepted_++];
    if (counted_) args_.counts->Add(token_id, /*is_output=*/true);
  }
  size_t accepted() const { return accepted_; }
  int32_t num_output_tokens() const {
    return args_.num_output_tokens + static_cast<int32_t>(accepted_);
  }

 private:
  void Remove(int32_t token_id) {
    if (counted_) args_.counts->Remove(token_id, /*is_output=*/true);
  }

  const AcceptRejectArgs& args_;
  const bool counted_;  // without penalties nothing looks at the counts
  size_t accepted_ = 0;
};

// The row after the transforms of the context. `scratch` holds the row if there were any
// transforms.
std::span<const float> Adjusted(std::span<const float> logits, const AcceptRejectArgs& args,
                                int32_t num_output_tokens, std::span<float> scratch) {
  if (!AdjustsLogits(*args.params, num_output_tokens)) return logits;
  AdjustLogits(logits, *args.params, *args.counts, num_output_tokens, scratch);
  return scratch;
}

Judgment JudgeGreedy(std::span<const float> adjusted, int32_t drafted, float lenience) {
  const int32_t best = Argmax(adjusted);
  if (drafted == best) return {.accepted = true, .token_id = drafted};
  if (drafted != kNoDraft && lenience < 1.0f) {
    // p(x) >= l · max p at temperature 1, where the normalizer cancels.
    const double ratio =
        std::exp(static_cast<double>(adjusted[drafted]) - static_cast<double>(adjusted[best]));
    if (ratio >= static_cast<double>(lenience)) return {.accepted = true, .token_id = drafted};
  }
  return {.token_id = best};
}

// Draws the token after a rejection from max(0, p - q), normalized, or from p if p and q are equal
// apart from rounding.
int32_t DrawRecovered(std::span<float> p, std::span<const float> q, int32_t rejected, double u) {
  if (!q.empty()) {
    const int32_t token_id =
        DrawByInverseCdf(p.size(), u, [&](size_t begin, size_t count, double* weights) {
          return row::ResidualWeights(p.subspan(begin, count), q.subspan(begin, count), weights);
        });
    return token_id >= 0 ? token_id : DrawFromLogProbs(p, u);
  }
  // q is one-hot, and a lenience let the token fail. The residual is p without it.
  const float rejected_log_prob = p[rejected];
  p[rejected] = kLogOfZero;
  if (row::Max(p) == kLogOfZero) p[rejected] = rejected_log_prob;
  const int32_t token_id = DrawFromLogProbs(p, u);
  p[rejected] = rejected_log_prob;
  return token_id;
}

//   p  [V]  the target's log-probabilities after all transforms; the same again on return
//   q  [V]  the drafter's; empty: one-hot
Judgment JudgeSampled(std::span<float> p, std::span<const float> q, int32_t drafted,
                      const DrawKey& key, float lenience) {
  // Nothing was drawn for this position yet: there is no draft, or it was found and not drawn. The
  // target draws as plain decoding would. A found token that it does not draw is rejected.
  if (drafted == kNoDraft || (q.empty() && lenience == 1.0f)) {
    const int32_t token_id = DrawFromLogProbs(p, TargetUniform(key));
    return {.accepted = token_id == drafted, .token_id = token_id};
  }
  const double draft_prob = q.empty() ? 1.0 : std::exp(static_cast<double>(q[drafted]));
  const double target_prob = std::exp(static_cast<double>(p[drafted]));
  const double u = Uniform(key, DrawPurpose::kAccept);
  if (AcceptsDraft(u, static_cast<double>(lenience), draft_prob, target_prob))
    return {.accepted = true, .token_id = drafted};
  return {.token_id = DrawRecovered(p, q, drafted, Uniform(key, DrawPurpose::kResample))};
}

}  // namespace

BlockVerdict AcceptReject(const AcceptRejectArgs& args) {
  const SamplingParams& params = *args.params;
  const size_t vocabulary_size = args.vocabulary_size;
  thread_local std::vector<float> row_buffer;
  if (row_buffer.size() < vocabulary_size) row_buffer.resize(vocabulary_size);
  const std::span<float> scratch(row_buffer.data(), vocabulary_size);

  BlockVerdict verdict;
  ContextWalk context(args);
  while (true) {
    const size_t i = context.accepted();
    const std::span<const float> logits(args.target_logits + i * args.logits_stride,
                                        vocabulary_size);
    if (!AllFinite(logits)) {
      verdict.finite = false;
      return verdict;
    }

    const int32_t drafted = i < args.draft_token_ids.size() ? args.draft_token_ids[i] : kNoDraft;
    const DrawKey key{.seed = params.seed, .position = args.position + i, .drafter = args.drafter};
    const std::span<const float> adjusted =
        Adjusted(logits, args, context.num_output_tokens(), scratch);
    Judgment judgment;
    if (params.greedy()) {
      judgment = JudgeGreedy(adjusted, drafted, params.lenience);
    } else {
      LogProbs(adjusted, params, scratch);
      if (params.reproducible) {
        judgment.token_id = DrawCoupled(scratch, key);
        judgment.accepted = judgment.token_id == drafted;
      } else {
        std::span<const float> q;
        if (args.draft_log_probs != nullptr && drafted != kNoDraft) {
          q = {args.draft_log_probs + i * vocabulary_size, vocabulary_size};
        }
        judgment = JudgeSampled(scratch, q, drafted, key, params.lenience);
        if (params.audit) {
          verdict.audit.push_back(SampleForAudit(scratch, q, drafted, judgment.token_id, key));
        }
      }
    }
    if (params.num_logprobs >= 0) {
      verdict.log_probs.push_back(ReportLogProbs(logits, judgment.token_id, params.num_logprobs));
    }
    if (!judgment.accepted) {
      verdict.num_accepted = static_cast<int32_t>(i);
      verdict.next_token_id = judgment.token_id;
      return verdict;
    }
    context.Accept();
  }
}

bool IsDraftRowValid(std::span<const float> log_probs, int32_t token_id) {
  if (token_id < 0 || static_cast<size_t>(token_id) >= log_probs.size()) return false;
  constexpr float kRounding = 1e-5f;
  if (!row::AllAtMost(log_probs, kRounding)) return false;
  const double sum = row::SumExp(log_probs, 0.0f);
  return std::abs(sum - 1.0) <= 1e-3 && std::exp(static_cast<double>(log_probs[token_id])) > 0;
}

}  // namespace tandem
