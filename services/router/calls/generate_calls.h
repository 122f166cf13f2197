// All Generate calls of a router's clients.
#ifndef TANDEM_SERVICES_ROUTER_CALLS_GENERATE_CALLS_H_
#define TANDEM_SERVICES_ROUTER_CALLS_GENERATE_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/router/calls/call_context.h"
#include "services/router/calls/generate_call.h"
#include "services/router/engine/engine_command.h"
#include "services/router/request/generation_request.h"
#include "services/router/request/request_validator.h"
#include "services/router/watch/request_log.h"
#include "services/router/watch/router_metrics.h"

namespace tandem {

// Takes calls, checks them, hands their requests to the fleet, and carries out what the fleet says
// about them. Everything runs on the thread that polls the completion queue.
class GenerateCalls final : public GenerateCall::Owner {
 public:
  struct Options {
    size_t buffer_bytes = 0;   // largest part of a stream that waits for its client to read
    size_t padding_bytes = 0;  // messages of a stream are multiples of it; 0: as they come
    std::vector<int32_t> end_of_text_ids;
    bool log_prompts = false;
  };

  // `metrics` must outlive the calls.
  GenerateCalls(CallContext context, Options options, RouterMetrics* metrics);

  // Waits for the next client; after the first time, each client that comes makes it wait for
  // another.
  void WaitForClient();

  // The commands of the fleet. A call that is gone needs nothing any more.
  void Write(WriteResponse write);
  void Finish(const FinishCall& finish);

  // Calls that clients have opened and that gRPC has not let go of.
  size_t num_open() const { return num_open_; }
  // Now and then: writes log lines that are due.
  void Tick(double now) { log_.Tick(now); }

 private:
  void OnOpened(GenerateCall& call) override;
  void OnCancelled(GenerateCall& call) override;
  void OnClosed(GenerateCall& call, bool opened) override;

  // Checks the request, in the background if its prompt is long.
  void Validate(GenerateCall& call, double arrived_at);
  void OnValidated(CallId id, double arrived_at, absl::StatusOr<GenerationRequest> request);
  // Ends a call that the fleet has taken.
  void FinishStarted(GenerateCall& call, const absl::Status& status, int emitted_tokens,
                     int retry_milliseconds, const std::optional<SlotLife>& slot);
  // Ends a call without a line in the log.
  void Finish(GenerateCall& call, const absl::Status& status, int emitted_tokens,
              int retry_milliseconds);
  // What is served now. PRECOND: a verifier has attached.
  ServedModel Served() const;

  const CallContext context_;
  const Options options_;
  RouterMetrics* metrics_;
  RequestLog log_;
  std::unordered_map<CallId, std::unique_ptr<GenerateCall>> calls_;  // the last waits for a client
  size_t num_open_ = 0;
  CallId last_call_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_CALLS_GENERATE_CALLS_H_
