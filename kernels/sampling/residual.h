// What is left of the target's distribution after drafts of one position were rejected.
#ifndef TANDEM_KERNELS_SAMPLING_RESIDUAL_H_
#define TANDEM_KERNELS_SAMPLING_RESIDUAL_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tandem {

// p_0 = p; p_(i+1) is proportional to max(0, p_i - q_i) (Miao et al. 2023, "SpecInfer", arXiv
// 2305.09781, Algorithm 2; Leviathan et al. 2023, Algorithm 1, is the case of one rejection). Sums
// are doubles.
class Residual {
 public:
  // `log_probs` [V] f32: p. Reject changes them; the destructor restores them.
  explicit Residual(std::span<float> log_probs) : p_(log_probs) {}
  ~Residual();
  Residual(const Residual&) = delete;
  Residual& operator=(const Residual&) = delete;

  // Returns the probability of a token.
  double Prob(int32_t token_id);
  // A token that was drawn from q was rejected. If nothing is left, p_i stays as it is: p_i and q
  // are equal apart from rounding. `draft_log_probs` [V] f32: q; must outlive this object
  void Reject(std::span<const float> draft_log_probs);
  // A token that was not drawn was rejected: its q is one-hot. PRECOND: Reject(q) was not called.
  void Reject(int32_t token_id);
  // Draws a token. PRECOND: u is in [0, 1).
  int32_t Draw(double u) const;

 private:
  // Makes weights_ of p and of the first rejected q.
  void Weigh();

  std::span<float> p_;
  std::vector<std::pair<int32_t, float>> removed_;  // tokens, and their entries of p_
  double removed_prob_ = 0;
  std::span<const float> q_;     // the first q that was rejected
  std::vector<double> weights_;  // [V] once p is no longer enough; not normalized
  double total_ = 0;             // the sum of weights_
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_RESIDUAL_H_
