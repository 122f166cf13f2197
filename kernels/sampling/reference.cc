#include "kernels/sampling/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "kernels/sampling/random/coupled_noise.h"

namespace tandem {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double RoundToFloat(double value) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return static_cast<double>(static_cast<float>(std::clamp(value, -kLargest, kLargest)));
}

// Token ids from the largest value to the smallest, lower ids first among equals.
template <class T>
std::vector<int32_t> Descending(std::span<const T> values) {
  std::vector<int32_t> ids(values.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return values[a] > values[b]; });
  return ids;
}

int32_t ArgmaxOf(std::span<const double> values) {
  return static_cast<int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

TokenLogProbs ReportReference(std::span<const float> logits, int32_t token_id, int32_t num_top) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  const auto log_prob = [&](int32_t id) {
    return static_cast<float>(static_cast<double>(logits[id]) - max - std::log(sum));
  };
  TokenLogProbs report{.log_prob = log_prob(token_id), .top = {}};
  for (int32_t id : Descending(logits)) {
    if (static_cast<int32_t>(report.top.size()) >= num_top) break;
    report.top.push_back({.token_id = id, .log_prob = log_prob(id)});
  }
  return report;
}

}  // namespace

std::vector<double> AdjustLogitsReference(std::span<const float> logits,
                                          const SamplingParams& params, const TokenCounts& counts,
                                          int32_t num_output_tokens) {
  std::vector<double> adjusted(logits.begin(), logits.end());
  for (const auto& [id, count] : counts.counts()) {
    double logit = adjusted[id];
    const double repetition = params.repetition_penalty;
    logit = logit > 0 ? logit / repetition : logit * repetition;
    if (count.output > 0) logit -= params.presence_penalty;
    logit -= static_cast<double>(params.frequency_penalty) * count.output;
    adjusted[id] = RoundToFloat(logit);
  }
  for (const auto& [id, bias] : params.logit_bias) adjusted[id] = RoundToFloat(adjusted[id] + bias);
  if (num_output_tokens < params.min_tokens) {
    std::vector<double> masked = adjusted;
    for (int32_t id : params.held_back_token_ids) masked[id] = -kInfinity;
    if (*std::max_element(masked.begin(), masked.end()) > -kInfinity) adjusted = masked;
  }
  return adjusted;
}

std::vector<double> ProbsReference(std::span<const double> adjusted, const SamplingParams& params) {
  const double max = *std::max_element(adjusted.begin(), adjusted.end());
  const std::vector<int32_t> order = Descending(adjusted);
  std::vector<double> probs(adjusted.size());
  std::vector<float> scaled(adjusted.size());  // in f32, so that the cuts see the same values
  for (size_t i = 0; i < probs.size(); ++i) {
    probs[i] = std::exp((adjusted[i] - max) / static_cast<double>(params.temperature));
    scaled[i] = (static_cast<float>(adjusted[i]) - static_cast<float>(max)) / params.temperature;
  }
  if (params.top_k > 0) {
    for (size_t rank = params.top_k; rank < order.size(); ++rank) probs[order[rank]] = 0;
  }
  if (params.top_p < 1.0f) {
    const double wanted =
        static_cast<double>(params.top_p) * std::accumulate(probs.begin(), probs.end(), 0.0);
    double reached = 0;
    for (int32_t id : Descending<float>(scaled)) {
      if (reached >= wanted) {
        probs[id] = 0;
      } else {
        reached += probs[id];
      }
    }
  }
  const double floor = std::log(static_cast<double>(params.min_p));  // the largest is exp(0)
  for (size_t i = 0; i < probs.size(); ++i) {
    if (static_cast<double>(scaled[i]) < floor) probs[i] = 0;
  }
  const double sum = std::accumulate(probs.begin(), probs.end(), 0.0);
  for (double& p : probs) p /= sum;
  return probs;
}

std::vector<double> SamplingProbsReference(std::span<const float> logits,
                                           const SamplingParams& params, const TokenCounts& counts,
                                           int32_t num_output_tokens) {
  const std::vector<double> adjusted =
      AdjustLogitsReference(logits, params, counts, num_output_tokens);
  if (!params.greedy()) return ProbsReference(adjusted, params);
  std::vector<double> one_hot(adjusted.size(), 0.0);
  one_hot[ArgmaxOf(adjusted)] = 1.0;
  return one_hot;
}

int32_t DrawReference(std::span<const double> weights, double u) {
  const double wanted = u * std::accumulate(weights.begin(), weights.end(), 0.0);
  double reached = 0;
  int32_t drawn = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0) continue;
    drawn = static_cast<int32_t>(i);
    reached += weights[i];
    if (reached > wanted) break;
  }
  return drawn;
}

int32_t DrawCoupledReference(std::span<const double> probs, const DrawKey& key) {
  double best = kInfinity;
  int32_t drawn = ArgmaxOf(probs);
  for (size_t i = 0; i < probs.size(); ++i) {
    if (probs[i] == 0) continue;
    const double score = -std::log1p(-CoupledUniform(key, static_cast<int32_t>(i))) / probs[i];
    if (score < best) {
      best = score;
      drawn = static_cast<int32_t>(i);
    }
  }
  return drawn;
}

std::vector<double> ResidualReference(std::span<const double> p, std::span<const double> q) {
  std::vector<double> residual(p.size());
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += residual[i] = std::max(0.0, p[i] - q[i]);
  if (sum == 0) residual.assign(p.begin(), p.end());
  return residual;
}

AuditSample SampleForAuditReference(std::span<const double> p, std::span<const double> q,
                                    std::span<const int32_t> drafted, int32_t token_id,
                                    const DrawKey& key) {
  AuditSample sample;
  for (int32_t x = 0; x < token_id; ++x) sample.uniform += p[x];
  sample.uniform += Uniform(key, DrawPurpose::kAudit) * p[token_id];
  if (p[token_id] == 0) sample.uniform = 1;
  if (drafted.empty()) return sample;
  std::set<int32_t> members(drafted.begin(), drafted.end());
  if (!q.empty()) members = {ArgmaxOf(q)};
  for (const int32_t member : members) {
    sample.draft_mode_excess += (token_id == member ? 1.0 : 0.0) - p[member];
  }
  return sample;
}

namespace {

// One step of AcceptRejectReference.
struct Step {
  int32_t child = -1;
  int32_t token_id = -1;
};

// The children of a node of the draft, in order.
std::vector<int32_t> ChildrenOf(const AcceptRejectArgs& args, int32_t node) {
  std::vector<int32_t> children;
  for (int32_t i = 0; i < static_cast<int32_t>(args.draft_token_ids.size()); ++i) {
    if ((args.draft_parents.empty() ? i - 1 : args.draft_parents[i]) == node) children.push_back(i);
  }
  return children;
}

// q of a draft token; empty: it was found.
std::vector<double> DraftProbs(const AcceptRejectArgs& args, int32_t child) {
  const auto index = static_cast<size_t>(child);
  std::vector<double> q;
  if (args.draft_log_probs == nullptr || index + args.num_found >= args.draft_token_ids.size()) {
    return q;
  }
  for (size_t x = 0; x < args.vocabulary_size; ++x) {
    q.push_back(
        std::exp(static_cast<double>(args.draft_log_probs[index * args.vocabulary_size + x])));
  }
  return q;
}

Step StepTo(const AcceptRejectArgs& args, std::span<const int32_t> children, int32_t token_id) {
  for (const int32_t child : children) {
    if (args.draft_token_ids[child] == token_id) return {child, token_id};
  }
  return {-1, token_id};
}

Step StepGreedily(const AcceptRejectArgs& args, std::span<const int32_t> children,
                  std::span<const double> adjusted) {
  const int32_t best = ArgmaxOf(adjusted);
  const Step step = StepTo(args, children, best);
  if (step.child >= 0 || args.params->lenience == 1.0f) return step;
  for (const int32_t child : children) {
    const int32_t token_id = args.draft_token_ids[child];
    if (std::exp(adjusted[token_id] - adjusted[best]) >=
        static_cast<double>(args.params->lenience)) {
      return {child, token_id};
    }
  }
  return step;
}

Step StepSampled(const AcceptRejectArgs& args, std::span<const int32_t> children,
                 std::span<const double> p, DrawKey key) {
  const auto lenience = static_cast<double>(args.params->lenience);
  const bool is_found = children.empty() || DraftProbs(args, children[0]).empty();
  if (is_found && (lenience == 1 || children.empty())) {
    const DrawKey plain = {.seed = key.seed, .position = key.position};
    return StepTo(args, children, DrawReference(p, Uniform(plain, DrawPurpose::kBonus)));
  }
  std::vector<double> left(p.begin(), p.end());
  for (size_t i = 0; i < children.size(); ++i) {
    std::vector<double> q = DraftProbs(args, children[i]);
    if (q.empty() && !is_found) {  // found siblings of drawn ones
      const int32_t token_id = DrawReference(left, Uniform(key, DrawPurpose::kResample));
      return StepTo(args, children.subspan(i), token_id);
    }
    const int32_t token_id = args.draft_token_ids[children[i]];
    if (q.empty()) {
      q.assign(p.size(), 0.0);
      q[token_id] = 1;
    }
    double total = 0;
    for (const double weight : left) total += weight;
    for (double& weight : left) weight /= total;
    DrawKey own = key;
    own.sibling = static_cast<uint8_t>(i);
    if (Uniform(own, DrawPurpose::kAccept) * lenience * q[token_id] < left[token_id]) {
      return {children[i], token_id};
    }
    left = ResidualReference(left, q);
  }
  return {-1, DrawReference(left, Uniform(key, DrawPurpose::kResample))};
}

}  // namespace

BlockVerdict AcceptRejectReference(const AcceptRejectArgs& args) {
  const SamplingParams& params = *args.params;
  TokenCounts counts = *args.counts;
  BlockVerdict verdict;
  for (int32_t node = -1;;) {
    const size_t depth = verdict.path.size();
    const std::span<const float> logits(
        args.target_logits + static_cast<size_t>(node + 1) * args.logits_stride,
        args.vocabulary_size);
    for (float logit : logits) verdict.finite = verdict.finite && std::isfinite(logit);
    if (!verdict.finite) return verdict;

    const int32_t num_output_tokens = args.num_output_tokens + static_cast<int32_t>(depth);
    const std::vector<double> p = SamplingProbsReference(logits, params, counts, num_output_tokens);
    const DrawKey key{
        .seed = params.seed, .position = args.position + depth, .drafter = args.drafter};
    const std::vector<int32_t> children = ChildrenOf(args, node);
    Step step;
    if (params.greedy()) {
      step = StepGreedily(args, children,
                          AdjustLogitsReference(logits, params, counts, num_output_tokens));
    } else if (params.reproducible) {
      step = StepTo(args, children, DrawCoupledReference(p, key));
    } else {
      step = StepSampled(args, children, p, key);
    }
    if (params.audit && !params.greedy() && !params.reproducible) {
      std::vector<int32_t> drafted;
      drafted.reserve(children.size());
      for (const int32_t child : children) drafted.push_back(args.draft_token_ids[child]);
      const std::vector<double> q =
          children.empty() ? std::vector<double>() : DraftProbs(args, children[0]);
      verdict.audit.push_back(SampleForAuditReference(p, q, drafted, step.token_id, key));
    }
    if (params.num_top() >= 0) {
      verdict.log_probs.push_back(ReportReference(logits, step.token_id, params.num_top()));
    }
    if (step.child < 0) {
      verdict.next_token_id = step.token_id;
      return verdict;
    }
    verdict.path.push_back(step.child);
    counts.Add(step.token_id, /*is_output=*/true);
    node = step.child;
  }
}

}  // namespace tandem
