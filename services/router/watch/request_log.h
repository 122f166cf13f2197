// The router's log lines about requests: one when a request starts, one when it ends, and one when
// it is refused. While there is no room for requests, one line a second counts all of them.
#ifndef TANDEM_SERVICES_ROUTER_WATCH_REQUEST_LOG_H_
#define TANDEM_SERVICES_ROUTER_WATCH_REQUEST_LOG_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"
#include "common/log/log_fields.h"
#include "services/router/engine/engine_command.h"
#include "services/router/request/generation_request.h"
#include "services/router/request/request_validator.h"
#include "tandem/v1/generate.pb.h"

namespace tandem {

// Lines have prompts only with `log_prompts`, and never outputs. A refused request was not checked
// completely, so an id that is longer than the validator allows is left out. `now` is seconds on a
// monotonic clock.
class RequestLog {
 public:
  explicit RequestLog(bool log_prompts,
                      size_t max_request_id_bytes = RequestLimits().max_request_id_bytes)
      : log_prompts_(log_prompts), max_request_id_bytes_(max_request_id_bytes) {}
  ~RequestLog() { WriteTurnedAway(); }

  // The validator refused the request. `traceparent` goes into the line if it is valid.
  void Refused(const v1::GenerateRequest& request, const std::string& traceparent,
               const absl::Status& status) const;
  // The request was not validated, because there is no room for it. Under overload there are many
  // such requests. At most one line a second states how many came since the last line. Level debug
  // adds a line for each request.
  void TurnedAway(const v1::GenerateRequest& request, const std::string& traceparent,
                  const absl::Status& status, double now);
  // Called for each choice of a call. `prompt` is the text of the prompt, if it is one.
  void Started(CallId call, const std::string& prompt, const GenerationRequest& resolved,
               double now);
  // Called with the last response, which has the completion.
  void Completed(CallId call, const v1::Completion& completion);
  // Writes one line for each request that started. Later calls for the same request do nothing.
  // `slot` is the last slot of the request; none: the request never ran.
  void Finished(CallId call, const absl::Status& status, int emitted_tokens,
                const std::optional<SlotLife>& slot, double now);
  // Called now and then. Writes the line about requests that were turned away if it is due.
  void Tick(double now);

 private:
  void WriteTurnedAway();
  // Returns the id and the trace of a request that did not start.
  LogFields About(const v1::GenerateRequest& request, const std::string& traceparent) const;

  struct Running {
    std::string request_id;
    uint32_t choice = 0;
    std::string traceparent;
    double started_at = 0;
    v1::Completion completion;
  };

  bool log_prompts_;
  size_t max_request_id_bytes_;
  std::unordered_map<CallId, Running> running_;
  struct {
    int64_t requests = 0;
    absl::Status status;  // status of the last request
    double logged_at = -1e9;
  } turned_away_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_WATCH_REQUEST_LOG_H_
