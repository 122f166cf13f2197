// One call of a GenerateMany stream.
#ifndef TANDEM_SERVICES_ROUTER_CLIENT_CALLS_MANY_MANY_CALL_H_
#define TANDEM_SERVICES_ROUTER_CLIENT_CALLS_MANY_MANY_CALL_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "services/router/client_calls/client_call.h"
#include "tandem/v1/generate.pb.h"

namespace tandem {

class ManyStream;

// The stream calls the functions that say what became of the call, and outlives it.
class ManyCall final : public ClientCall {
 public:
  // `begin` has the request, which is taken out of it.
  ManyCall(CallId id, size_t buffer_bytes, size_t padding_bytes, v1::GenerateManyRequest begin,
           ManyStream* stream);

  uint64_t number() const { return number_; }
  absl::Status Check(CallGate& gate) const override;
  std::string tenant() const override { return tenant_; }
  std::string traceparent() const override { return traceparent_; }
  bool finished() const override { return finished_; }
  bool Write(v1::GenerateResponse response) override;
  void Finish(const absl::Status& status, int emitted_tokens, int retry_milliseconds) override;

  void OnSent(const v1::GenerateResponse& response);
  // The client has canceled the call, or is gone.
  void SetCanceled() { finished_ = true; }

 private:
  const uint64_t number_;
  const size_t padding_bytes_;
  const std::string tenant_;
  const std::string traceparent_;
  const std::string authorization_;
  ManyStream* const stream_;
  size_t waiting_bytes_ = 0;  // responses that were not sent
  bool finished_ = false;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_CLIENT_CALLS_MANY_MANY_CALL_H_
