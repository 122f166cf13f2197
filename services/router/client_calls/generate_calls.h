// All Generate calls of a router's clients.
#ifndef TANDEM_SERVICES_ROUTER_CLIENT_CALLS_GENERATE_CALLS_H_
#define TANDEM_SERVICES_ROUTER_CLIENT_CALLS_GENERATE_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/router/client_calls/call_context.h"
#include "services/router/client_calls/choices.h"
#include "services/router/client_calls/client_call.h"
#include "services/router/engine/engine_command.h"
#include "services/router/request/generation_request.h"
#include "services/router/request/request_validator.h"
#include "services/router/watch/request_log.h"
#include "services/router/watch/router_metrics.h"

namespace tandem {

// Takes calls, checks them, gives their requests to the fleet, and carries out the fleet's commands
// about them. Everything runs on the thread that polls the completion queue.
class GenerateCalls final : public ClientCall::Owner {
 public:
  struct Options {
    size_t buffer_bytes = 0;   // largest part of a stream that waits for its client to read
    size_t padding_bytes = 0;  // message sizes are multiples of this number; 0: any size
    std::vector<int32_t> end_of_text_ids;
    bool log_prompts = false;
  };

  // `metrics` must outlive the calls.
  GenerateCalls(CallContext context, Options options, RouterMetrics* metrics);

  // Waits for the first client. Each client that comes begins the wait for the next client.
  void WaitForClient();
  // Returns an id for a call of another kind, which Take gets next. The call counts as opened.
  CallId NewId() { return ++last_call_; }
  void Take(std::unique_ptr<ClientCall> call);

  // Carry out commands of the fleet. Commands for a call that is gone do nothing.
  void Write(WriteResponse write);
  void Finish(const FinishCall& finish);

  // Number of calls that clients have opened and that gRPC has not released.
  size_t num_open() const { return num_open_; }
  // Called now and then. Writes log lines that are due.
  void Tick(double now) { log_.Tick(now); }

 private:
  void OnOpened(ClientCall& call) override;
  void OnCanceled(ClientCall& call) override;
  void OnClosed(ClientCall& call, bool opened) override;

  // Refuses the call, or has its request checked.
  void Begin(ClientCall& call);
  // Checks the request, in the background if its prompt is long.
  void Validate(ClientCall& call, double arrived_at);
  void OnValidated(CallId id, double arrived_at, absl::StatusOr<GenerationRequest> request);
  // The fleet gets the next choice of a call, if its newest one has output and it wants more.
  void BeginNext(const Choices::Choice& newest);
  // Takes all choices of a call back from the fleet, except for one that has ended. Returns the
  // number of tokens that they have emitted.
  int CancelChoices(const ClientCall& call, CallId ended, const absl::Status& why);
  // Ends a call without a line in the log.
  void Finish(ClientCall& call, const absl::Status& status, int emitted_tokens,
              int retry_milliseconds);
  // Returns the model that is served now. PRECOND: a verifier has attached.
  ServedModel Served() const;

  const CallContext context_;
  const Options options_;
  RouterMetrics* metrics_;
  RequestLog log_;
  Choices choices_;
  // One of the calls waits for a client.
  std::unordered_map<CallId, std::unique_ptr<ClientCall>> calls_;
  size_t num_open_ = 0;
  CallId last_call_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_CLIENT_CALLS_GENERATE_CALLS_H_
