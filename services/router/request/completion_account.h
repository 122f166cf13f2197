// The costs of a request and the effects of speculation: the numbers of `Completion`.
#ifndef TANDEM_SERVICES_ROUTER_REQUEST_COMPLETION_ACCOUNT_H_
#define TANDEM_SERVICES_ROUTER_REQUEST_COMPLETION_ACCOUNT_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "services/router/drafting/drafter_set.h"
#include "tandem/v1/generate.pb.h"

namespace tandem {

// Times are seconds on the router's clock. The decode phase begins with the first token. Work
// before the first token is prefill and counts in prefill_seconds only.
class CompletionAccount {
 public:
  explicit CompletionAccount(double arrived_at) : arrived_at_(arrived_at) {}

  double arrived_at() const { return arrived_at_; }
  void Admitted(double now) { admitted_at_ = now; }
  double admitted_at() const { return admitted_at_; }

  // Count a batch that had the request's slot. The whole time of the batch counts, because the slot
  // waited for the whole batch.
  void Drafted(double round_trip_seconds, double compute_seconds);
  void Verified(double round_trip_seconds, double compute_seconds);

  // Counts a round without a draft, or with a draft that was dropped unjudged.
  void AddPlainRound() { ++num_plain_rounds_; }
  // A round with a draft. `accepted` and `tested` stop at the token that ended the request.
  struct DraftedRound {
    int drafted;      // tokens that were sent to the verifier
    int depth;        // those of them on the longest path
    int accepted;     // drafted tokens that were accepted and emitted
    int tested;       // accepted tokens, plus 1 if a rejected position was emitted
    Drafter drafter;  // who made them
    int emitted = 0;  // accepted tokens and the one after them
    // Tokens that plain decoding would have given in the time of the round. 0: not known.
    double plain_tokens = 0;
  };
  // `name`: the drafter's, or that of the draft model.
  void AddDraftedRound(const DraftedRound& round, const std::string& name);

  // Work for the request, from which no draft of the round came, in tokens of plain decoding.
  void AddDraftingWork(Drafter drafter, double plain_tokens) {
    drafts_[{drafter, std::string()}].plain_tokens += plain_tokens;
  }

  // Called after each round that emitted tokens.
  void Emitted(double now);

  void Fill(v1::Completion* completion) const;

  // Returns true once the request has emitted a token.
  bool decoding() const { return first_token_at_.has_value(); }

 private:
  double arrived_at_;
  double admitted_at_ = 0;
  std::optional<double> first_token_at_;
  double last_token_at_ = 0;
  double draft_seconds_ = 0;
  double verify_seconds_ = 0;
  double transfer_seconds_ = 0;

  int num_drafts_ = 0;
  int num_plain_rounds_ = 0;
  int num_draft_tokens_ = 0;
  int num_trees_ = 0;
  std::vector<int> accepted_per_position_;
  std::vector<int> tested_per_position_;
  std::string drafter_;  // name of the last one
  // What each drafter, and each draft model, did.
  struct Drafts {
    int rounds = 0;
    int drafted = 0;
    int accepted = 0;
    int tested = 0;
    int round_tokens = 0;  // in rounds whose costs are known
    double plain_tokens = 0;
  };
  // By drafter, and by the name of the draft model, which other drafters lack.
  std::map<std::pair<Drafter, std::string>, Drafts> drafts_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_REQUEST_COMPLETION_ACCOUNT_H_
