// The events that the router tells an observer one by one, as they happen. RouterMetrics makes
// histograms of them. What is only counted is in Counts. An observer does not change what the
// router does.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_ENGINE_OBSERVER_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_ENGINE_OBSERVER_H_

#include <string>

#include "services/router/drafting/drafter_set.h"
#include "tandem/v1/generate.pb.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// A request's part of a round. Counts stop at the token that ended the request, as those of
// CompletionAccount do.
struct CommittedRound {
  int num_drafted = 0;
  int depth = 0;  // drafted tokens on the longest path
  int num_accepted = 0;
  int num_tested = 0;
  v1::TokenSource last_source =
      v1::TOKEN_SOURCE_UNSPECIFIED;  // source of the token after the accepted ones
  bool emitted_last = false;         // whether that token was emitted
  Drafter drafter = Drafter::kModel;
  std::string draft_model = {};  // its name, if a draft model drafted
  int num_emitted = 0;           // accepted tokens and the one after them
  // Tokens that plain decoding would have given in the time of the round (GainSums). 0: not known.
  double plain_tokens = 0;
};

// Seconds of a round in which a client's request decoded. With two cohorts, the time of waiting for
// the verifier is in `total` alone.
struct RoundSeconds {
  double draft = 0;     // computation of the drafter
  double verify = 0;    // computation of the verifier
  double transfer = 0;  // rest of the time that their batches took
  double commit = 0;    // work of the router before each batch
  double total = 0;     // time from the event that began the round to the verifier's answer
};

class EngineObserver {
 public:
  virtual ~EngineObserver() = default;

  virtual void OnAdmitted(double /*queue_seconds*/) {}
  virtual void OnFirstToken(double /*seconds_from_arrival*/) {}
  virtual void OnCommitted(const CommittedRound& /*round*/) {}
  // A drafter worked in a round, and no judged draft came of that. `plain_tokens`: those that plain
  // decoding would have given in this time.
  virtual void OnDraftingWork(Drafter /*drafter*/, const std::string& /*draft_model*/,
                              double /*plain_tokens*/) {}
  virtual void OnRound(const RoundSeconds& /*seconds*/) {}
  virtual void OnCompleted(const v1::Completion& /*completion*/) {}
  virtual void OnRingOpened(v1::RingTransport /*transport*/, double /*seconds*/) {}
};

// An observer that takes no notice.
inline EngineObserver* NobodyObserves() {
  static EngineObserver nobody;
  return &nobody;
}

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_ENGINE_OBSERVER_H_
