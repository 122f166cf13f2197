// One call of Generate, as the router sees it: on a stream of its own, or on one of many calls.
#ifndef TANDEM_SERVICES_ROUTER_CLIENT_CALLS_CLIENT_CALL_H_
#define TANDEM_SERVICES_ROUTER_CLIENT_CALLS_CLIENT_CALL_H_

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/security/call_gate.h"
#include "services/router/admission/refusal.h"
#include "services/router/engine/engine_command.h"
#include "tandem/v1/generate.pb.h"

namespace tandem {

// Carries a client's responses. At most `buffer_bytes` of responses wait for a client that does not
// read, so memory is bounded. Everything runs on the thread that polls the completion queue.
class ClientCall {
 public:
  class Owner {
   public:
    virtual void OnOpened(ClientCall& call) = 0;
    // The client canceled the call or left, or the deadline passed, before the call was finished.
    virtual void OnCanceled(ClientCall& call) = 0;
    // gRPC has released the call. The owner may destroy the call now, and not before. `opened` is
    // false if the server shut down before a client came.
    virtual void OnClosed(ClientCall& call, bool opened) = 0;

   protected:
    ~Owner() = default;
  };

  ClientCall(CallId id, size_t buffer_bytes) : id_(id), buffer_bytes_(buffer_bytes) {}
  virtual ~ClientCall() = default;
  ClientCall(const ClientCall&) = delete;
  ClientCall& operator=(const ClientCall&) = delete;

  CallId id() const { return id_; }
  const v1::GenerateRequest& request() const { return request_; }
  // Frees the request's memory after the request was resolved. A request can be long and have
  // unknown fields, and its stream can last long.
  void DropRequest() { v1::GenerateRequest().Swap(&request_); }

  // Returns why the client may not make a call of Generate, or nothing. `gate` knows the tokens.
  virtual std::optional<Refusal> Check(CallGate& gate) const = 0;
  // Metadata `tandem-tenant`; empty: none. Each tenant's prompts are cached separately.
  virtual std::string tenant() const = 0;
  // Metadata `traceparent`, unchecked; empty: none.
  virtual std::string traceparent() const = 0;

  // Returns true if the call was finished or canceled, or the client left. Responses that are
  // written from now on do not arrive.
  virtual bool finished() const = 0;
  // At least so many bytes of responses may wait, if the buffer is smaller.
  void RaiseBuffer(size_t bytes) { buffer_bytes_ = std::max(buffer_bytes_, bytes); }
  // Returns false if the client reads too slowly. The responses that were not sent yet are then
  // dropped, and the caller should finish the call.
  virtual bool Write(v1::GenerateResponse response) = 0;
  // Number of tokens in the responses that gRPC was given.
  int num_sent_tokens() const { return num_sent_tokens_; }
  // Ends the call after the responses that were written. The first status counts.
  virtual void Finish(const absl::Status& status, int emitted_tokens, int retry_milliseconds) = 0;

 protected:
  v1::GenerateRequest& mutable_request() { return request_; }
  size_t buffer_bytes() const { return buffer_bytes_; }
  void CountSent(const v1::GenerateResponse& response) {
    num_sent_tokens_ += response.token_ids_size();
  }

 private:
  const CallId id_;
  size_t buffer_bytes_;
  v1::GenerateRequest request_;
  int num_sent_tokens_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_CLIENT_CALLS_CLIENT_CALL_H_
