// One request and its answer: the two sides that a connection and a call show each other.
#ifndef TANDEM_SERVICES_GATEWAY_HTTP_EXCHANGE_H_
#define TANDEM_SERVICES_GATEWAY_HTTP_EXCHANGE_H_

#include <boost/asio/any_io_executor.hpp>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "services/gateway/http/http_message.h"

namespace tandem::gateway {

// The connection's side. Everything, the constructor of the exchange included, happens on the
// connection's strand. After Send, End or Break the exchange is over, and its side lets go of this
// object.
class Reply {
 public:
  virtual ~Reply() = default;

  // The strand. Other threads post to it.
  virtual boost::asio::any_io_executor executor() const = 0;

  // The whole answer.
  virtual void Send(HttpAnswer answer) = 0;
  // Counts bytes of a whole answer that is being collected. RESOURCE_EXHAUSTED: the answer is too
  // large. UNAVAILABLE: all exchanges together hold too much. The bytes then do not count.
  virtual absl::Status Keep(size_t bytes) = 0;

  // Begins an answer with status 200 in pieces, as server-sent events.
  virtual void BeginStream() = 0;
  virtual void Write(std::string_view bytes) = 0;
  // The part of the answer that the client has not taken yet. A call that sees much of it waits for
  // OnWritten before it writes more.
  virtual size_t waiting_bytes() const = 0;
  // Ends the stream well.
  virtual void End() = 0;
  // Closes the connection after what was written, without the end that HTTP wants, so that nobody
  // takes the stream for a complete one.
  virtual void Break() = 0;

  // What the access log will say.
  virtual AccessNotes& notes() = 0;
};

// The call's side.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // A part of what was written has gone to the client.
  virtual void OnWritten() {}
  // Nobody waits for the answer any more: the client has left, or this process ends. The exchange
  // is over.
  virtual void OnGone() = 0;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_HTTP_EXCHANGE_H_
