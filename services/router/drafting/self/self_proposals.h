// The proposals of a drafter that lives in the verifier, for one request.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_SELF_SELF_PROPOSALS_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_SELF_SELF_PROPOSALS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "services/router/drafting/drafter_set.h"
#include "services/router/drafting/lookup/lookup_draft.h"
#include "services/router/drafting/self/chance_calibration.h"

namespace tandem {

// What all requests of a mode have shown of it.
struct SelfPrior {
  ChanceCalibration calibration;
  // Tokens that a proposal gains, less what it costs, in tokens of plain decoding. A new server
  // takes proposals for worth their cost, to find out.
  double net_gain = 0.3;
  uint32_t num_requests = 0;

  // Returns true if a new request should ask at once. If proposals cost more than they gain, only
  // some requests do: before a first proposal, a layer of EAGLE must read the whole prompt.
  bool AsksAtOnce() {
    constexpr uint32_t kRequestsPerTrial = 8;
    return num_requests++ % kRequestsPerTrial == 0 || net_gain > 0;
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
  // `prior` must outlive it. `has_rivals`: the request has lookups too. What other requests have
  // shown then says whether proposals are used beside them. Without lookups, each request asks at
  // once, because it may differ from the others.
  SelfProposals(Drafter drafter, SelfPrior* prior, bool has_rivals)
      : drafter_(drafter), prior_(prior), net_gain_(prior->net_gain) {
    asks_at_once_ = !has_rivals || prior->AsksAtOnce();
    if (!asks_at_once_) gap_ = kLongestGap;
  }

  Drafter drafter() const { return drafter_; }

  // Returns true if the next command should ask. All slots of the batch wait for the answer, so the
  // more slots there are, the longer are the gaps.
  bool IsWanted(uint32_t num_slots = 1) const {
    return net_gain_ > 0 || asks_at_once_ || rounds_since_asked_ >= gap_ * num_slots;
  }
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
  // One round of the request has ended. `gained`: tokens of such a draft that were accepted, less
  // the cost of their rows; 0 without one. `cost`: what the proposal of this round cost; none: the
  // verifier was not asked. All in tokens of plain decoding. `teaches`: other requests learn from
  // it, because nothing forced the size of the draft.
  void OnRound(double gained, std::optional<ProposalCost> cost, bool teaches = true);

 private:
  static constexpr uint32_t kFirstGap = 8;
  static constexpr uint32_t kLongestGap = 64;

  Drafter drafter_;
  SelfPrior* prior_;
  double net_gain_;  // mean of the last rounds in which the verifier was asked, or had a draft
  bool asks_at_once_ = true;
  uint32_t rounds_since_asked_ = 0;
  uint32_t gap_ = kFirstGap;  // rounds between two questions while proposals gain nothing
  size_t length_ = 0;         // tokens of the text that proposal_ continues
  LookupDraft proposal_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_SELF_SELF_PROPOSALS_H_
