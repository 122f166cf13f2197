// Estimates how likely a draft token is accepted, by its position in the block. There is an
// estimate for each sequence, and a prior for all requests of a mode, which each new sequence
// starts from.
//
// A block is judged from the front, and judging stops at the first rejection. Position i is tested
// only if all tokens before it were accepted. The estimate is therefore the chance under the
// condition that the position is reached. Positions after a rejection are not counted: they are
// censored, not rejected.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_ACCEPTANCE_ACCEPTANCE_ESTIMATE_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_ACCEPTANCE_ACCEPTANCE_ESTIMATE_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace tandem {

// The way in which a request draws tokens. It affects how often draft tokens are accepted.
enum class AcceptanceMode : uint8_t {
  kGreedy,
  kReproducible,
  kSampled,
  kOwnDraft,  // one of the two before, whose draft model draws in a way of its own
};
inline constexpr int kNumAcceptanceModes = 4;

// What a verdict says about one position of a draft: the children of one token.
struct JudgedPosition {
  uint32_t num_children = 1;
  int32_t accepted = -1;  // the accepted one's number among them; -1: none was accepted
};
// A chain of `num_drafted` tokens, as far as it was tested. PRECOND: num_accepted <= num_drafted.
std::vector<JudgedPosition> JudgedChain(uint32_t num_drafted, uint32_t num_accepted);

// Tests and acceptances by position. Older counts fade. Position kPositions - 1 also counts all
// later positions. In a tree, a position counts for the first child alone, and siblings are counted
// by rank over all positions.
class AcceptanceCounts {
 public:
  static constexpr uint32_t kPositions = 16;
  static constexpr uint32_t kRanks = 3;  // the last one also counts all later ranks

  // Multiplies the weight of all counts of positions so far by `factor`. Those of siblings fade
  // with each of their own tests, because there are few.
  void Fade(double factor);
  void Add(std::span<const JudgedPosition> draft);

  double tested(uint32_t position) const { return tested_[Index(position)]; }
  double accepted(uint32_t position) const { return accepted_[Index(position)]; }
  double siblings_tested(uint32_t rank) const { return siblings_tested_[RankIndex(rank)]; }
  double siblings_accepted(uint32_t rank) const { return siblings_accepted_[RankIndex(rank)]; }
  double total_tested() const { return total_tested_; }
  double total_accepted() const { return total_accepted_; }

 private:
  static uint32_t Index(uint32_t position) {
    return position < kPositions ? position : kPositions - 1;
  }

  static uint32_t RankIndex(uint32_t rank) { return (rank < kRanks ? rank : kRanks) - 1; }

  std::array<double, kPositions> tested_{};
  std::array<double, kPositions> accepted_{};
  std::array<double, kRanks> siblings_tested_{};  // [rank - 1]
  std::array<double, kRanks> siblings_accepted_{};
  double total_tested_ = 0;
  double total_accepted_ = 0;
};

// The estimate over all requests of one mode.
class AcceptancePrior {
 public:
  void Observe(std::span<const JudgedPosition> draft);

  // Returns the chance over all positions.
  double Mean() const;
  // Returns the chance at one position, given that the position is reached.
  double Conditional(uint32_t position) const;
  // Returns the chance of a sibling of this rank, given that its parent is reached.
  double OfSibling(uint32_t rank) const;

 private:
  AcceptanceCounts counts_;
};

// The estimate of one sequence.
class AcceptanceEstimate {
 public:
  // `prior` must outlive the estimate.
  explicit AcceptanceEstimate(const AcceptancePrior* prior) : prior_(prior) {}

  // Call this function for every round that committed tokens. A round without a draft has no
  // positions.
  void Observe(std::span<const JudgedPosition> draft);

  // Returns P(the token at this position is accepted | all tokens before it were). Positions start
  // at 0.
  double Conditional(uint32_t position) const;
  // Returns P(the sibling of this rank is accepted | its parent was). The first child has rank 0
  // and is no sibling here.
  double OfSibling(uint32_t rank) const;
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

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_ACCEPTANCE_ACCEPTANCE_ESTIMATE_H_
