// Estimates how likely a draft token is accepted, by its position in the block. There is an
// estimate for each sequence, and a prior for all requests of a mode, which each new sequence
// starts from.
//
// A block is judged from the front, and judging stops at the first rejection. Position i is tested
// only if all tokens before it were accepted. The estimate is therefore the chance under the
// condition that the position is reached. Positions after a rejection are not counted: they are
// censored, not rejected.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_ACCEPTANCE_ESTIMATE_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_ACCEPTANCE_ESTIMATE_H_

#include <array>
#include <cstdint>

namespace tandem {

// The way in which a request draws tokens. It affects how often draft tokens are accepted.
enum class AcceptanceMode : uint8_t { kGreedy, kReproducible, kSampled };
inline constexpr int kNumAcceptanceModes = 3;

// Tests and acceptances by position. Older counts fade. Position kPositions - 1 also counts all
// later positions.
class AcceptanceCounts {
 public:
  static constexpr uint32_t kPositions = 16;

  // Multiplies the weight of all counts so far by `factor`.
  void Fade(double factor);
  // Adds a judged block. PRECOND: num_accepted <= num_drafted.
  void Add(uint32_t num_drafted, uint32_t num_accepted);

  double tested(uint32_t position) const { return tested_[Index(position)]; }
  double accepted(uint32_t position) const { return accepted_[Index(position)]; }
  double total_tested() const { return total_tested_; }
  double total_accepted() const { return total_accepted_; }

 private:
  static uint32_t Index(uint32_t position) {
    return position < kPositions ? position : kPositions - 1;
  }

  std::array<double, kPositions> tested_{};
  std::array<double, kPositions> accepted_{};
  double total_tested_ = 0;
  double total_accepted_ = 0;
};

// The estimate over all requests of one mode.
class AcceptancePrior {
 public:
  void Observe(uint32_t num_drafted, uint32_t num_accepted);

  // Returns the chance over all positions.
  double Mean() const;
  // Returns the chance at one position, given that the position is reached.
  double Conditional(uint32_t position) const;

 private:
  AcceptanceCounts counts_;
};

// The estimate of one sequence.
class AcceptanceEstimate {
 public:
  // `prior` must outlive the estimate.
  explicit AcceptanceEstimate(const AcceptancePrior* prior) : prior_(prior) {}

  // Call this function for every round that committed tokens. A round without a draft has
  // num_drafted = 0.
  void Observe(uint32_t num_drafted, uint32_t num_accepted);

  // Returns P(the token at this position is accepted | all tokens before it were). Positions start
  // at 0.
  double Conditional(uint32_t position) const;
  // Returns the number of rounds since the last round with a draft.
  uint32_t rounds_without_draft() const { return rounds_without_draft_; }

 private:
  // Forgets earlier counts that the last few rounds contradict.
  void NoticeChange();

  const AcceptancePrior* prior_;
  AcceptanceCounts counts_;
  double recent_tested_ = 0;  // positions tested in the last few rounds
  double recent_accepted_ = 0;
  uint32_t rounds_without_draft_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_ACCEPTANCE_ESTIMATE_H_
