#include "kernels/sampling/residual.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "kernels/sampling/draw.h"
#include "kernels/sampling/random/inverse_cdf.h"
#include "kernels/sampling/transform/row_kernels.h"

namespace tandem {

Residual::~Residual() {
  for (const auto& [token_id, log_prob] : removed_) p_[token_id] = log_prob;
}

double Residual::Prob(int32_t token_id) {
  if (!q_.empty() && weights_.empty()) Weigh();
  if (!weights_.empty()) return weights_[token_id] / total_;
  const double prob = std::exp(static_cast<double>(p_[token_id]));
  return removed_.empty() ? prob : prob / (1 - removed_prob_);
}

void Residual::Weigh() {
  weights_.resize(p_.size());
  total_ = row::ResidualWeights(p_, q_, weights_.data());
  if (!(total_ > 0)) total_ = row::Weights(p_, weights_.data());
}

void Residual::Reject(std::span<const float> draft_log_probs) {
  if (q_.empty()) {
    q_ = draft_log_probs;
    return;
  }
  if (weights_.empty()) Weigh();
  std::vector<double> left(weights_.size());
  row::Weights(draft_log_probs, left.data());
  double total = 0;
  for (size_t i = 0; i < left.size(); ++i) {
    total += left[i] = std::max(0.0, weights_[i] / total_ - left[i]);
  }
  if (!(total > 0)) return;
  weights_ = std::move(left);
  total_ = total;
}

void Residual::Reject(int32_t token_id) {
  if (std::any_of(removed_.begin(), removed_.end(),
                  [&](const auto& entry) { return entry.first == token_id; })) {
    return;
  }
  const float log_prob = p_[token_id];
  p_[token_id] = -std::numeric_limits<float>::infinity();
  if (row::Max(p_) == p_[token_id]) {  // nothing else is left
    p_[token_id] = log_prob;
    return;
  }
  removed_.emplace_back(token_id, log_prob);
  removed_prob_ += std::exp(static_cast<double>(log_prob));
}

int32_t Residual::Draw(double u) const {
  const auto draw = [&](const auto& make_weights) {
    const int32_t token_id = DrawByInverseCdf(p_.size(), u, make_weights);
    return token_id >= 0 ? token_id : DrawFromLogProbs(p_, u);
  };
  if (!weights_.empty()) {
    return draw([&](size_t begin, size_t count, double* weights) {
      double sum = 0;
      for (size_t i = 0; i < count; ++i) sum += weights[i] = weights_[begin + i];
      return sum;
    });
  }
  if (q_.empty()) return DrawFromLogProbs(p_, u);
  return draw([&](size_t begin, size_t count, double* weights) {
    return row::ResidualWeights(p_.subspan(begin, count), q_.subspan(begin, count), weights);
  });
}

}  // namespace tandem
