// The events that the engine tells an observer one by one, as they happen: RouterMetrics makes
// histograms of them. What is only counted is in Counts. An observer changes nothing of what the
// engine does.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_ENGINE_OBSERVER_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_ENGINE_OBSERVER_H_

#include <string>

#include "tandem/v1/generate.pb.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// A request's part of a round, as far as it was emitted: counts stop at the token that ended it, as
// those of CompletionAccount.
struct CommittedRound {
  int num_drafted = 0;
  int num_accepted = 0;
  int num_tested = 0;
  v1::TokenSource last_source =
      v1::TOKEN_SOURCE_UNSPECIFIED;      // source of the token after the accepted ones
  bool emitted_last = false;             // whether there was one
  const std::string* drafter = nullptr;  // name of its model; null: nothing was drafted
};

// Seconds of a round in which a client's request decoded. With two cohorts, the time of waiting for
// the verifier is in `total` alone.
struct RoundSeconds {
  double draft = 0;     // the drafter computed
  double verify = 0;    // the verifier computed
  double transfer = 0;  // their batches took beside
  double commit = 0;    // the router's work before each batch
  double total = 0;     // from the event that began it to the verifier's answer
};

class EngineObserver {
 public:
  virtual ~EngineObserver() = default;

  virtual void OnAdmitted(double /*queue_seconds*/) {}
  virtual void OnFirstToken(double /*seconds_from_arrival*/) {}
  virtual void OnCommitted(const CommittedRound& /*round*/) {}
  virtual void OnRound(const RoundSeconds& /*seconds*/) {}
  virtual void OnCompleted(const v1::Completion& /*completion*/) {}
  virtual void OnRingOpened(v1::RingTransport /*transport*/, double /*seconds*/) {}
};

// One who takes no notice.
inline EngineObserver* NobodyObserves() {
  static EngineObserver nobody;
  return &nobody;
}

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_ENGINE_OBSERVER_H_
