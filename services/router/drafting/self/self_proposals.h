// The proposals of a drafter that lives in the verifier, for one request.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_SELF_SELF_PROPOSALS_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_SELF_SELF_PROPOSALS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "services/router/drafting/drafter_set.h"
#include "services/router/drafting/lookup/lookup_draft.h"
#include "services/router/drafting/self/chance_calibration.h"

namespace tandem {

// A place of the text at which the verifier is asked, by the draft that it judges with the same
// command. After a match, the next place often has a match too, which needs no proposal.
enum class AskingPlace : uint8_t { kAfterMatch, kElsewhere };
inline constexpr size_t kNumAskingPlaces = 2;

// The time that requests of a mode spend on questions from which no gain is expected, if they may
// use other drafters too. They are asked because nobody would notice otherwise that proposals have
// become better. Numbers are in tokens of plain decoding.
class QuestionBudget {
 public:
  bool CanAsk() const { return saved_ >= 0; }
  void OnRound() { Add(kShareOfRound); }
  // Such a question was asked, or its proposal has gained something.
  void OnAsked(double cost) { Add(-cost); }
  void OnGained(double tokens) { Add(tokens); }

 private:
  static constexpr double kShareOfRound = 0.01;
  static constexpr double kMostSaved = 2;
  // A layer of EAGLE that reads a long text takes as much. Larger costs are those of a machine that
  // was stopped, and do not silence a mode for longer.
  static constexpr double kMostOwed = 100;
  void Add(double tokens) { saved_ = std::clamp(saved_ + tokens, -kMostOwed, kMostSaved); }
  double saved_ = kMostSaved;
};

// What all requests of a mode have shown of it. Those that may use no other drafter have one of
// their own.
struct SelfPrior {
  ChanceCalibration calibration;
  // Tokens that a proposal gains, less what it costs, in tokens of plain decoding, by place. A new
  // server takes proposals for worth their cost, to find out.
  std::array<double, kNumAskingPlaces> net_gain = {0.3, 0.3};
  uint32_t num_requests = 0;
  QuestionBudget budget;

  // Returns true if a new request should ask at once. If proposals cost more than they gain, only
  // some requests do: before a first proposal, a layer of EAGLE must read the whole prompt.
  bool AsksAtOnce() {
    constexpr uint32_t kRequestsPerTrial = 8;
    return num_requests++ % kRequestsPerTrial == 0 ||
           net_gain[static_cast<size_t>(AskingPlace::kElsewhere)] > 0;
  }
};

// What a proposal took from all slots of its batch, in tokens of plain decoding.
struct ProposalCost {
  ProposalCost(double each) : alone(each), together(each) {}  // NOLINT: a number is both
  ProposalCost(double of_those_who_asked, double if_all_had_asked)
      : alone(of_those_who_asked), together(if_all_had_asked) {}
  double alone;  // the share of a slot, of those that asked
  // The share of a slot if all had asked. Requests that begin learn from it: if they all ask, they
  // share the cost.
  double together;
};

// The verifier is asked with a command and proposes with the verdict, before anybody knows whether
// the proposal will be used. So the router asks while proposals have gained more than they cost,
// and now and then otherwise.
class SelfProposals {
 public:
  // `prior` must outlive it. `has_rivals`: the request has a draft model or lookups too. What other
  // requests have shown then says whether proposals are used beside them. Without rivals, each
  // request asks at once, because it may differ from the others.
  SelfProposals(Drafter drafter, SelfPrior* prior, bool has_rivals);

  Drafter drafter() const { return drafter_; }

  // Returns true if the next command, at such a place, should ask. All slots of the batch wait for
  // the answer, so the more slots there are, the longer are the gaps.
  bool IsWanted(AskingPlace place, uint32_t num_slots = 1) const;
  // The text has `length` tokens, and the verifier proposes what follows. The draft has beliefs.
  void OnProposal(size_t length, LookupDraft draft);
  // Returns what the verifier proposed after exactly these tokens, sorted by chance, or a draft
  // without tokens.
  LookupDraft Find(std::span<const int32_t> tokens, const LookupLimits& limits) const;

  // A draft of the verifier was judged, see ChanceCalibration::Observe.
  void OnJudged(std::span<const float> beliefs, std::span<const int32_t> parents,
                std::span<const uint32_t> accepted) {
    prior_->calibration.Observe(beliefs, parents, accepted);
  }
  // The verifier was asked and proposed nothing, because it cannot: the text is older than its
  // heads, or they are gone. It is asked rarely from now on, and nobody learns from it.
  void OnNoAnswer();

  // The verifier has read the request's text anew. What was proposed before is gone, and nobody
  // learns what it would have gained. OnRound comes next.
  void OnPrompt() { asked_.reset(); }

  // What a round shows. All numbers are in tokens of plain decoding.
  struct Round {
    // Tokens of the last proposal that were accepted, less the cost of their rows, and less what
    // the best other draft was worth. 0: the proposal was not used, or there was none.
    double gained = 0;
    // The place at which the verifier was asked for the next proposal, and what that proposal cost.
    AskingPlace place = AskingPlace::kElsewhere;
    std::optional<ProposalCost> cost = {};  // none: it was not asked
    // Other requests learn from it, because nothing forced the size of the draft.
    bool teaches = true;
  };
  // One round of the request has ended.
  void OnRound(const Round& round);

 private:
  static constexpr uint32_t kFirstGap = 8;
  static constexpr uint32_t kLongestGap = 64;

  // When the verifier is asked at one kind of place.
  struct Schedule {
    double net_gain = 0;       // mean of the last proposals
    uint32_t num_learned = 0;  // proposals that it is the mean of
    uint32_t rounds_since_asked = 0;
    uint32_t gap = kFirstGap;  // rounds between two questions while proposals gain nothing
  };
  // A proposal whose gain the next round shows.
  struct Asked {
    AskingPlace place;
    ProposalCost cost;
    bool is_expected_to_pay;
  };
  void Learn(const Asked& asked, double gained, bool teaches);
  Schedule& At(AskingPlace place) { return schedules_[static_cast<size_t>(place)]; }

  Drafter drafter_;
  SelfPrior* prior_;
  bool has_rivals_;
  std::array<Schedule, kNumAskingPlaces> schedules_;
  bool asks_at_once_ = true;
  std::optional<Asked> asked_;
  size_t length_ = 0;  // tokens of the text that proposal_ continues
  LookupDraft proposal_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_SELF_SELF_PROPOSALS_H_
