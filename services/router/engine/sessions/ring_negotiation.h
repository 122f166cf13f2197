// Starts the log-prob ring between the two workers of a pod.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_SESSIONS_RING_NEGOTIATION_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_SESSIONS_RING_NEGOTIATION_H_

#include <cstdint>
#include <optional>
#include <string>

#include "services/router/engine/counts.h"
#include "services/router/engine/engine_command.h"
#include "services/router/engine/engine_observer.h"
#include "services/router/engine/sessions/ring_credits.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

enum class TransportChoice : uint8_t { kAuto, kCudaIpc, kShm, kInline };

struct RingOptions {
  TransportChoice transport = TransportChoice::kAuto;
  uint32_t max_slots = 0;
  uint32_t max_draft_length = 0;
};

// Chooses the transports, keeps the step of the negotiation, and logs its outcome. Each step's
// command is returned to the caller, who sends the command and then calls Sent.
class RingNegotiation {
 public:
  // `out`, `counts` and `observer` must outlive the negotiation. Only log lines go to `out`.
  RingNegotiation(const RingOptions& options, EngineCommands* out, Counts* counts,
                  EngineObserver* observer)
      : options_(options), out_(out), counts_(counts), observer_(observer) {}

  // Begins with the fastest transport that both workers offer. Returns no command if there is none.
  // The command goes to the verifier, like that of OnRefused.
  std::optional<v1::CreateRing> Start(const v1::AttachReply& draft, const v1::AttachReply& target,
                                      double now);
  // Id of the command that was sent for the current step.
  void Sent(uint64_t command_id) { command_id_ = command_id; }
  // Returns true if the command is the current step of a negotiation.
  bool IsUnderWay(uint64_t command_id) const {
    return credits_.negotiating() && command_id == command_id_;
  }

  // The replies to the steps. They are called only if IsUnderWay is true for the reply's id.
  v1::OpenRing OnCreated(const v1::CreateRingReply& reply) { return credits_.Created(reply); }
  v1::ConfirmRing OnOpened(const v1::OpenRingReply& reply) { return credits_.Opened(reply); }
  void OnConfirmed(double now);
  std::optional<v1::CreateRing> OnRefused(Worker worker, const v1::WorkerError& error);

  RingCredits& credits() { return credits_; }
  const RingCredits& credits() const { return credits_; }

 private:
  bool Allows(TransportChoice choice) const {
    return options_.transport == choice || options_.transport == TransportChoice::kAuto;
  }
  // Returns `create`. Without a command, logs that there is no ring, and why.
  std::optional<v1::CreateRing> OrNone(std::optional<v1::CreateRing> create, const char* why);
  void Warn(const std::string& summary, const std::string& detail);

  const RingOptions options_;
  EngineCommands* out_;
  Counts* counts_;
  EngineObserver* observer_;
  RingCredits credits_;
  uint64_t command_id_ = 0;
  double started_at_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_SESSIONS_RING_NEGOTIATION_H_
