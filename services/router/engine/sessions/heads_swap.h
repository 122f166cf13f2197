// Keeps the heads of a pod's verifier at those that the operator wants.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_SESSIONS_HEADS_SWAP_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_SESSIONS_HEADS_SWAP_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "services/router/engine/engine_command.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// Whether two statements of one verifier process are about the same heads. A process that was
// started again may state other ones by the same words.
bool AreSameHeads(const v1::SelfDrafter& a, const v1::SelfDrafter& b);

// Pure: log lines go to `out`. A wish is sent to each session of the verifier until the verifier
// has the heads, or says that it cannot load them. While they are being loaded, it is sent again
// and again, because an answer never waits for them.
class HeadsSwap {
 public:
  // `out` must outlive the object. Wishes are numbered from `first_wish` on, a random number.
  HeadsSwap(uint64_t first_wish, EngineCommands* out) : out_(out), wish_(first_wish) {}

  // `heads` is as of v1.SetHeads. None: the verifier keeps those that it has. A wish that failed
  // before is tried again.
  void Want(std::optional<std::string> heads, double now);
  // A session with a verifier began.
  void OnAttached(double now);
  // The session has ended.
  void OnLost();

  // The wish should be sent now.
  bool IsDue(double now) const { return now >= send_at_; }
  // Returns the command that asks for the heads. Its answer has the id of the command that it is
  // sent in. PRECOND: IsDue.
  v1::SetHeads Ask(uint64_t command_id);
  // Whether this answers the newest question.
  bool IsAnswer(uint64_t command_id) const { return asked_as_ == command_id; }
  void OnAnswer(const v1::SetHeadsReply& reply, double now);
  void OnRefused(const std::string& why);
  // The verifier says which drafter it has. Returns true if that is another one than `known`.
  bool IsNews(const v1::SelfDrafter& drafter, const v1::SelfDrafter& known);

  double NextDeadline() const { return send_at_; }
  // The verifier may still be loading the heads, or was not asked yet.
  bool under_way() const { return send_at_ != kNever || asked_as_ != 0; }
  // Why the verifier does not have the heads, for the operator. Empty: no reason is known.
  const std::string& problem() const { return problem_; }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  static constexpr double kPauseSeconds = 0.1;

  // Sends the wish to the session that there is.
  void SendAt(double at);

  EngineCommands* out_;
  uint64_t wish_;
  std::optional<std::string> wanted_;
  bool has_session_ = false;
  double send_at_ = kNever;
  uint64_t asked_as_ = 0;  // id of the command that is not answered yet; 0: there is none
  std::string problem_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_SESSIONS_HEADS_SWAP_H_
