// The line of the access log that a request will have.
#ifndef TANDEM_SERVICES_GATEWAY_HTTP_ACCESS_ENTRY_H_
#define TANDEM_SERVICES_GATEWAY_HTTP_ACCESS_ENTRY_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "services/gateway/http/http_service.h"

namespace tandem::gateway {

class AccessEntry {
 public:
  // Returns false if the request has begun already.
  bool Begin() {
    if (began_at_.has_value()) return false;
    began_at_ = Clock::now();
    return true;
  }
  void SetRequest(const HttpRequest& request) {
    record_.method = request.method;
    record_.path = request.path;
    record_.notes.traceparent = request.traceparent;
  }
  void SetStatus(int status) { record_.status = status; }
  void AddBytes(size_t count) { record_.bytes += count; }

  bool is_head() const { return record_.method == "HEAD"; }
  AccessNotes& notes() { return record_.notes; }

  // Gives the line out, and makes room for the next request.
  void End(HttpService& service) {
    const Clock::time_point now = Clock::now();
    record_.seconds = std::chrono::duration<double>(now - began_at_.value_or(now)).count();
    service.OnAnswered(record_);
    record_ = {};
    began_at_.reset();
  }

 private:
  using Clock = std::chrono::steady_clock;

  AccessRecord record_;
  std::optional<Clock::time_point> began_at_;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_HTTP_ACCESS_ENTRY_H_
