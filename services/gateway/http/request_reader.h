// Makes requests from the bytes of a connection.
#ifndef TANDEM_SERVICES_GATEWAY_HTTP_REQUEST_READER_H_
#define TANDEM_SERVICES_GATEWAY_HTTP_REQUEST_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "services/gateway/http/http_message.h"
#include "services/gateway/limits/byte_budget.h"
#include "services/gateway/limits/http_limits.h"

namespace tandem::gateway {

// Reads one request after the other. It knows no sockets: its owner puts bytes into it. Lengths
// that clients announce reserve nothing, and bodies in chunks have the same limits as others.
class RequestReader {
 public:
  RequestReader(const HttpLimits& limits, ByteBudget* budget);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  // The number of bytes that may be put now. 0: what was put must be parsed first.
  size_t free_bytes() const;
  void Put(std::string_view bytes);

  enum class State : uint8_t {
    kIdle,    // no byte of the next request is there
    kHead,    // the headers are not complete
    kBody,    // the headers are complete, and the body is not
    kWhole,   // the request is complete
    kFailed,  // it will never be complete: see fault
  };
  // Parses what is there, up to the end of the headers or of the request. A state before kWhole
  // wants more bytes, except that kBody comes once at the end of the headers.
  State Parse();
  State state() const { return state_; }

  // Valid from kBody on. The body is there from kWhole on.
  const HttpRequest& request() const { return request_; }
  bool keeps_alive() const { return keeps_alive_; }
  bool speaks_old_http() const { return speaks_old_http_; }
  // The client waits for `100 Continue` before it sends the body.
  bool expects_continue() const { return expects_continue_; }

  // The part of the present body that is there.
  uint64_t body_bytes() const;
  // Takes the bytes that the body holds, which otherwise count only until Take.
  ByteLease TakeLease();
  // Takes the request, and begins with the next one.
  HttpRequest Take();
  // Forgets everything. What is put from now on does not matter.
  void GiveUp();

  // Valid in kFailed: the status and the message of the answer.
  struct Fault {
    int status = 400;
    std::string message;
  };
  const Fault& fault() const { return fault_; }

  // Bytes that belong to later requests.
  size_t waiting_bytes() const;

 private:
  struct Impl;  // keeps Beast's headers out of this header

  void OnHead();
  State Fail(int status, std::string message);

  const HttpLimits& limits_;
  ByteBudget* const budget_;
  std::unique_ptr<Impl> impl_;
  State state_ = State::kIdle;
  HttpRequest request_;
  bool keeps_alive_ = false;
  bool speaks_old_http_ = false;
  bool expects_continue_ = false;
  Fault fault_;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_HTTP_REQUEST_READER_H_
