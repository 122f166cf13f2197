#include "kernels/sampling/accept_reject.h"

#include <cmath>
#include <vector>

#include "kernels/sampling/audit_sample.h"
#include "kernels/sampling/draw.h"
#include "kernels/sampling/log_probs_report.h"
#include "kernels/sampling/residual.h"
#include "kernels/sampling/transform/row_kernels.h"
#include "kernels/sampling/transform/transform.h"

namespace tandem {
namespace {

constexpr int32_t kNoToken = -1;

// What was decided at one node of a draft.
struct Judgment {
  int32_t child = -1;  // index of the accepted child; -1: none was accepted
  int32_t token_id = kNoToken;
};

// The walk over a draft: the accepted tokens so far, which the context counts while the walk lasts.
class DraftWalk {
 public:
  explicit DraftWalk(const AcceptRejectArgs& args)
      : args_(args), counted_(HasPenalties(*args.params)) {}
  ~DraftWalk() {
    if (!counted_) return;
    for (const int32_t node : path_) args_.counts->Remove(Token(node), /*is_output=*/true);
  }
  DraftWalk(const DraftWalk&) = delete;
  DraftWalk& operator=(const DraftWalk&) = delete;

  void Accept(int32_t child) {
    path_.push_back(child);
    if (counted_) args_.counts->Add(Token(child), /*is_output=*/true);
  }
  const std::vector<int32_t>& path() const { return path_; }
  int32_t node() const { return path_.empty() ? kDraftRoot : path_.back(); }
  int32_t num_output_tokens() const {
    return args_.num_output_tokens + static_cast<int32_t>(path_.size());
  }
  std::span<const float> logits() const {
    return {args_.target_logits + static_cast<size_t>(node() + 1) * args_.logits_stride,
            args_.vocabulary_size};
  }
  // Returns the key of the draws at this position for the first child.
  DrawKey key() const {
    return {.seed = args_.params->seed,
            .position = args_.position + path_.size(),
            .drafter = args_.drafter};
  }

  int32_t Token(int32_t child) const { return args_.draft_token_ids[child]; }
  // Returns the child's q; empty: the token was found.
  std::span<const float> DraftRow(int32_t child) const {
    const auto index = static_cast<size_t>(child);
    if (args_.draft_log_probs == nullptr ||
        index + args_.num_found >= args_.draft_token_ids.size()) {
      return {};
    }
    return {args_.draft_log_probs + index * args_.vocabulary_size, args_.vocabulary_size};
  }
  int32_t FirstChild() const { return args_.shape().FirstChild(node()); }
  int32_t NextChild(int32_t child) const { return args_.shape().NextChild(node(), child); }
  // Returns the first of the children from `child` on that has this token. -1: there is none.
  int32_t ChildWith(int32_t token_id, int32_t child) const {
    while (child >= 0 && Token(child) != token_id) child = NextChild(child);
    return child;
  }

 private:
  const AcceptRejectArgs& args_;
  const bool counted_;  // without penalties nothing looks at the counts
  std::vector<int32_t> path_;
};

// The row after the transforms of the context. `scratch` holds the row if there were any
// transforms.
std::span<const float> Adjusted(std::span<const float> logits, const AcceptRejectArgs& args,
                                int32_t num_output_tokens, std::span<float> scratch) {
  if (!AdjustsLogits(*args.params, num_output_tokens)) return logits;
  AdjustLogits(logits, *args.params, *args.counts, num_output_tokens, scratch);
  return scratch;
}

Judgment JudgeGreedy(const DraftWalk& walk, std::span<const float> adjusted, float lenience) {
  const int32_t best = Argmax(adjusted);
  const Judgment judgment = {walk.ChildWith(best, walk.FirstChild()), best};
  if (judgment.child >= 0 || lenience == 1.0f) return judgment;
  for (int32_t child = walk.FirstChild(); child >= 0; child = walk.NextChild(child)) {
    // p(x) >= l · max p at temperature 1, where the normalizer cancels.
    const double ratio = std::exp(static_cast<double>(adjusted[walk.Token(child)]) -
                                  static_cast<double>(adjusted[best]));
    if (ratio >= static_cast<double>(lenience)) return {child, walk.Token(child)};
  }
  return judgment;
}

//   p  [V]  the target's log-probabilities after all transforms; the same again on return
Judgment JudgeSampled(const DraftWalk& walk, std::span<float> p, float lenience) {
  DrawKey key = walk.key();
  int32_t child = walk.FirstChild();
  // Nothing was drawn for this position yet: there is no draft, or it was found and not drawn. The
  // target draws as plain decoding would. Found tokens that it does not draw are rejected.
  if (child < 0 || (walk.DraftRow(child).empty() && lenience == 1.0f)) {
    const int32_t token_id = DrawFromLogProbs(p, TargetUniform(key));
    return {walk.ChildWith(token_id, child), token_id};
  }
  Residual left(p);
  bool any_drawn = false;
  for (; child >= 0; child = walk.NextChild(child), ++key.sibling) {
    const std::span<const float> q = walk.DraftRow(child);
    if (q.empty() && any_drawn) break;
    any_drawn = !q.empty();
    const int32_t drafted = walk.Token(child);
    const double draft_prob = q.empty() ? 1.0 : std::exp(static_cast<double>(q[drafted]));
    if (AcceptsDraft(Uniform(key, DrawPurpose::kAccept), static_cast<double>(lenience), draft_prob,
                     left.Prob(drafted))) {
      return {child, drafted};
    }
    if (any_drawn) {
      left.Reject(q);
    } else {
      left.Reject(drafted);
    }
  }
  const int32_t token_id = left.Draw(Uniform(walk.key(), DrawPurpose::kResample));
  return {walk.ChildWith(token_id, child), token_id};
}

AuditSample Audit(const DraftWalk& walk, std::span<const float> p, int32_t token_id) {
  const int32_t first = walk.FirstChild();
  const std::span<const float> q = first >= 0 ? walk.DraftRow(first) : std::span<const float>();
  std::vector<int32_t> drafted;
  for (int32_t child = first; child >= 0; child = walk.NextChild(child)) {
    drafted.push_back(walk.Token(child));
  }
  return SampleForAudit(p, q, drafted, token_id, walk.key());
}

}  // namespace

BlockVerdict AcceptReject(const AcceptRejectArgs& args) {
  const SamplingParams& params = *args.params;
  thread_local std::vector<float> row_buffer;
  if (row_buffer.size() < args.vocabulary_size) row_buffer.resize(args.vocabulary_size);
  const std::span<float> scratch(row_buffer.data(), args.vocabulary_size);

  BlockVerdict verdict;
  DraftWalk walk(args);
  while (true) {
    const std::span<const float> logits = walk.logits();
    if (!AllFinite(logits)) {
      verdict.finite = false;
      return verdict;
    }
    const std::span<const float> adjusted =
        Adjusted(logits, args, walk.num_output_tokens(), scratch);
    Judgment judgment;
    if (params.greedy()) {
      judgment = JudgeGreedy(walk, adjusted, params.lenience);
    } else {
      LogProbs(adjusted, params, scratch);
      if (params.reproducible) {
        judgment.token_id = DrawCoupled(scratch, walk.key());
        judgment.child = walk.ChildWith(judgment.token_id, walk.FirstChild());
      } else {
        judgment = JudgeSampled(walk, scratch, params.lenience);
        if (params.audit) verdict.audit.push_back(Audit(walk, scratch, judgment.token_id));
      }
    }
    if (params.num_top() >= 0) {
      verdict.log_probs.push_back(ReportLogProbs(logits, judgment.token_id, params.num_top()));
    }
    if (judgment.child < 0) {
      verdict.path = walk.path();
      verdict.next_token_id = judgment.token_id;
      return verdict;
    }
    walk.Accept(judgment.child);
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
