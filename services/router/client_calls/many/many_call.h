// One call of a GenerateMany stream.
#ifndef TANDEM_SERVICES_ROUTER_CLIENT_CALLS_MANY_MANY_CALL_H_
#define TANDEM_SERVICES_ROUTER_CLIENT_CALLS_MANY_MANY_CALL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "services/router/admission/refusal.h"
#include "services/router/client_calls/client_call.h"
#include "services/router/client_calls/waiting_responses.h"
#include "tandem/v1/generate.pb.h"

namespace tandem {

class ManyStream;

// What the client did not get yet waits here until the stream takes it. The stream outlives the
// call.
class ManyCall final : public ClientCall {
 public:
  // `begin` has the request, which is taken out of it. A call with a refusal is not begun.
  ManyCall(CallId id, size_t buffer_bytes, size_t padding_bytes, v1::GenerateManyRequest begin,
           std::optional<Refusal> refusal, ManyStream* stream);

  uint64_t number() const { return number_; }
  std::optional<Refusal> Check(CallGate& gate) const override;
  std::string tenant() const override { return tenant_; }
  std::string traceparent() const override { return traceparent_; }
  bool finished() const override { return end_.has_value(); }
  bool Write(v1::GenerateResponse response) override;
  void Finish(const absl::Status& status, int emitted_tokens, int retry_milliseconds) override;

  // The call ends before its time. What waits is dropped.
  void Cancel(const absl::Status& why);
  // Whether something waits for the client, and the size of the next event, about.
  bool has_more() const { return !waiting_.empty() || (end_.has_value() && !is_over_); }
  size_t next_bytes() const;
  // Takes the next event, which counts as sent. PRECOND: has_more().
  v1::CallEvent Take();
  // The end was taken.
  bool is_over() const { return is_over_; }
  // Whether the stream knows that something waits. Kept for the stream.
  bool is_ready() const { return is_ready_; }
  void set_ready(bool is_ready) { is_ready_ = is_ready; }

 private:
  const uint64_t number_;
  const size_t padding_bytes_;
  const std::string tenant_;
  const std::string traceparent_;
  const std::optional<std::string> authorization_;
  const std::optional<Refusal> refusal_;
  ManyStream* const stream_;
  WaitingResponses waiting_;
  std::optional<v1::CallEnd> end_;  // comes after what waits
  bool is_over_ = false;
  bool is_ready_ = false;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_CLIENT_CALLS_MANY_MANY_CALL_H_
