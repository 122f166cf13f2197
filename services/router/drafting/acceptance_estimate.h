// How likely a draft token is accepted, by its position in the block: of one sequence, and of all
// requests of a mode, where a sequence starts from.
//
// A block is judged from the front and stops at the first rejection, so position i is tested only
// when all before it were accepted: what is estimated is the chance given that the position is
// reached, and positions behind a rejection are not counted (they are censored, not rejected).
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_ACCEPTANCE_ESTIMATE_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_ACCEPTANCE_ESTIMATE_H_

#include <array>
#include <cstdint>

namespace tandem {

// How a request draws decides how often the drafter is right.
enum class AcceptanceMode : uint8_t { kGreedy, kReproducible, kSampled };
inline constexpr int kNumAcceptanceModes = 3;

// Tests and acceptances by position, old ones fading. Positions from kPositions - 1 on are counted
// as one.
class AcceptanceCounts {
 public:
  static constexpr uint32_t kPositions = 16;

  // Everything counted so far becomes `factor` times as heavy.
  void Fade(double factor);
  // A judged block. PRECOND: num_accepted <= num_drafted.
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

// What all requests of one mode have in common.
class AcceptancePrior {
 public:
  void Observe(uint32_t num_drafted, uint32_t num_accepted);

  // The chance over all positions.
  double Mean() const;
  // The chance at one position, given that the position is reached.
  double Conditional(uint32_t position) const;

 private:
  AcceptanceCounts counts_;
};

// What one sequence has shown so far.
class AcceptanceEstimate {
 public:
  // `prior` must outlive it.
  explicit AcceptanceEstimate(const AcceptancePrior* prior) : prior_(prior) {}

  // Every round that committed tokens, also one without a draft: num_drafted = 0.
  void Observe(uint32_t num_drafted, uint32_t num_accepted);

  // P(position is accepted | all before it were), position 0 first.
  double Conditional(uint32_t position) const;
  // Rounds since the last one with a draft.
  uint32_t rounds_without_draft() const { return rounds_without_draft_; }

 private:
  // Forgets what the last few rounds contradict.
  void NoticeChange();

  const AcceptancePrior* prior_;
  AcceptanceCounts counts_;
  double recent_tested_ = 0;  // positions tested in the last few rounds
  double recent_accepted_ = 0;
  uint32_t rounds_without_draft_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_ACCEPTANCE_ESTIMATE_H_
