// What the engine tells, as it happens, to whoever counts it (RouterMetrics). It changes nothing of
// what the engine does.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_OBSERVER_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_OBSERVER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "services/router/engine_command.h"
#include "tandem/v1/generate.pb.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// Why a request that may be drafted for decoded plainly in a round.
enum class Fallback : uint8_t {
  kNoDrafter,      // none is attached
  kNotWorthwhile,  // drafts are not expected to pay
  kCatchingUp,     // the drafter lacks rows of it
  kNoRing,         // no entry of the log-prob ring is free, or there is no ring
  kNoPages,        // of a KV cache
  kNoRoom,         // near its last token, or the end of a context
  kGivenUp,        // the drafter cannot serve it
  kDraftFailed,    // the drafter refused it this time, or was lost
  kRingError,      // the block could not be judged
};
inline constexpr size_t kNumFallbacks = 9;
inline constexpr const char* kFallbackNames[kNumFallbacks] = {
    "no_drafter", "not_worthwhile", "catching_up",  "no_ring",   "no_pages",
    "no_room",    "given_up",       "draft_failed", "ring_error"};

// What became of a session with a worker.
enum class SessionChange : uint8_t {
  kAttached,
  kDisconnected,   // the stream ended: it died, or the connection
  kHung,           // no sign of life, or no progress
  kTimeout,        // no drafts, or not attached, in time
  kProtocolError,  // it answered what it must not
  kIncompatible,
};
inline constexpr size_t kNumSessionChanges = 6;
inline constexpr const char* kSessionChangeNames[kNumSessionChanges] = {
    "attached", "disconnected", "hung", "timeout", "protocol_error", "incompatible"};

// A request's part of a round, as far as it was emitted: counts stop at the token that ended it, as
// those of CompletionAccount.
struct CommittedRound {
  int num_drafted = 0;
  int num_accepted = 0;
  int num_tested = 0;
  v1::TokenSource last_source = v1::TOKEN_SOURCE_UNSPECIFIED;  // of the token after those accepted
  bool emitted_last = false;                                   // whether there was one
  const std::string* drafter = nullptr;  // name of its model; null: nothing was drafted
};

// Of a round in which a request of a client decoded, in seconds. With two cohorts, waiting for the
// verifier is in `total` alone.
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
  virtual void OnFallback(Fallback /*reason*/) {}
  virtual void OnRound(const RoundSeconds& /*seconds*/) {}
  virtual void OnCompleted(const v1::Completion& /*completion*/) {}
  virtual void OnPreempted() {}
  // Rows of a prompt that a worker was sent, and of them those in its prefix cache.
  virtual void OnPrefixLookup(Worker /*worker*/, uint32_t /*num_tokens*/, uint32_t /*num_found*/) {}
  virtual void OnSessionChange(Worker /*worker*/, SessionChange /*change*/) {}
  virtual void OnRingOpened(v1::RingTransport /*transport*/, double /*seconds*/) {}
  // A worker cannot have a ring of it; the next transport is tried, if there is one.
  virtual void OnRingRefused(Worker /*worker*/, v1::RingTransport /*transport*/) {}
  virtual void OnReplay(bool /*same*/) {}
};

// One who takes no notice.
inline EngineObserver* NobodyObserves() {
  static EngineObserver nobody;
  return &nobody;
}

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_OBSERVER_H_
