// The interface between a worker's gRPC server and one of its sessions.
#ifndef TANDEM_SERVICES_WORKER_SESSION_SESSION_HANDLER_H_
#define TANDEM_SERVICES_WORKER_SESSION_SESSION_HANDLER_H_

#include <functional>

#include "absl/status/status.h"

namespace tandem {

// One session: what a worker does for one router. The server destroys the handler when the router's
// stream ends.
template <typename Command, typename Reply>
class SessionHandler {
 public:
  using Emit = std::function<void(Reply)>;
  virtual ~SessionHandler() = default;
  // Answers a command through `emit`, which may be called any number of times before this function
  // returns. A status that is not OK ends the session with that status, after everything that was
  // emitted has been sent.
  virtual absl::Status Handle(const Command& command, const Emit& emit) = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_SESSION_SESSION_HANDLER_H_
