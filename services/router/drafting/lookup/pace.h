// How fast a request goes on after a place where no lookup found a match. It says what time is
// worth at such a place.
//
// A draft takes time, in which other rounds would commit tokens too. After a place without a match,
// for example where a text leaves what its client predicted, the next token may have a match again,
// whose draft gives many tokens at once. A long draft of the draft model then gains little: a plain
// round and the match after it are faster. In other texts, a place without a match is followed by
// others. So where matches do follow, what a draft gains at such a place is compared with what its
// time is worth at the pace of the rounds that usually follow, and not at that of plain decoding.
// (This is the rule of average-reward decision processes: maximize tokens - rate * time.)
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_PACE_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_PACE_H_

#include <algorithm>
#include <utility>

namespace tandem {

class Pace {
 public:
  // The lookups of a round looked for a match. OnRound comes next.
  void OnSearch(bool has_match) {
    searched_ = true;
    has_match_ = has_match;
  }

  // A round of the request committed `tokens` at `now`. `plain_seconds`: time of a plain round of
  // its batch; 0: not known.
  void OnRound(double now, double tokens, double plain_seconds) {
    const double rounds = plain_seconds > 0 ? (now - last_at_) / plain_seconds : 0;
    const bool searched = std::exchange(searched_, false);
    const bool follows = std::exchange(follows_no_match_, searched && !has_match_);
    last_at_ = now;
    if (!follows || rounds < kShortest || rounds > kLongest) return;
    num_rounds_ = std::min(num_rounds_ + 1, kMostRounds);
    const double weight = 1.0 / num_rounds_;
    tokens_ += weight * (tokens - tokens_);
    rounds_ += weight * (rounds - rounds_);
    share_of_matches_ += weight * ((searched && has_match_ ? 1 : 0) - share_of_matches_);
  }

  // Tokens in the time of a plain round. Plain decoding has 1, and less is not stated. 0: not known
  // yet, or matches hardly ever follow. Rounds then are alike, and a difference between this mean
  // and what a round promises would be noise.
  double tokens_per_plain_round() const {
    if (rounds_ == 0 || share_of_matches_ < kLeastShare) return 0;
    return std::max(1.0, tokens_ / rounds_);
  }

 private:
  // The mean is one over this number of rounds. Tokens of one round say little.
  static constexpr int kMostRounds = 16;
  // A round that takes less or more than this, in plain rounds, was not measured well: it waited
  // for prompts, or for the machine.
  static constexpr double kShortest = 0.5;
  static constexpr double kLongest = 8;
  // Share of the rounds after ones without a match that must have one.
  static constexpr double kLeastShare = 0.15;

  double last_at_ = 0;
  bool searched_ = false;          // the round that is under way looked for a match
  bool has_match_ = false;         // and found one
  bool follows_no_match_ = false;  // the round before it had none
  int num_rounds_ = 0;
  double tokens_ = 0;            // tokens of a round after one without a match
  double rounds_ = 0;            // time of such a round, in plain rounds
  double share_of_matches_ = 0;  // share of such rounds that had a match
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_LOOKUP_PACE_H_
