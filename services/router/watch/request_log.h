// What the router's log says about requests: a line when one starts, one when it ends, one when it
// is refused; where there is no place for any, one a second for all of them.
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

// Prompts are left out unless `log_prompts`; outputs always; ids that are longer than the validator
// allows too, as nobody checked yet what is refused. `now` is seconds on a monotonic clock.
class RequestLog {
 public:
  explicit RequestLog(bool log_prompts,
                      size_t max_request_id_bytes = RequestLimits().max_request_id_bytes)
      : log_prompts_(log_prompts), max_request_id_bytes_(max_request_id_bytes) {}
  ~RequestLog() { WriteTurnedAway(); }

  // `traceparent` goes into the line if it is valid.
  void Refused(const v1::GenerateRequest& request, const std::string& traceparent,
               const absl::Status& status) const;
  // Unread, as there is no place for it. Under overload there are many: a line has how many came
  // since the last one, at most one a second (at level debug: one for each).
  void TurnedAway(const v1::GenerateRequest& request, const std::string& traceparent,
                  const absl::Status& status, double now);
  void Started(CallId call, const v1::GenerateRequest& request, const GenerationRequest& resolved,
               double now);
  // The last response, which has the completion.
  void Completed(CallId call, const v1::Completion& completion);
  // Once for each that started; later calls do nothing. `slot`: the last that it had;
  // none: it never ran.
  void Finished(CallId call, const absl::Status& status, int emitted_tokens,
                const std::optional<SlotLife>& slot, double now);
  // Now and then: writes what TurnedAway has counted, when its time has come.
  void Tick(double now);

 private:
  void WriteTurnedAway();
  // What a request that did not start says of itself.
  LogFields About(const v1::GenerateRequest& request, const std::string& traceparent) const;

  struct Running {
    std::string request_id;
    std::string traceparent;
    double started_at = 0;
    v1::Completion completion;
  };

  bool log_prompts_;
  size_t max_request_id_bytes_;
  std::unordered_map<CallId, Running> running_;
  struct {
    int64_t requests = 0;
    absl::Status status;  // of the last
    double logged_at = -1e9;
  } turned_away_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_WATCH_REQUEST_LOG_H_
