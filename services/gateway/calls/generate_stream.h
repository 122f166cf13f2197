// One call of Generate, as seen from a connection's strand.
#ifndef TANDEM_SERVICES_GATEWAY_CALLS_GENERATE_STREAM_H_
#define TANDEM_SERVICES_GATEWAY_CALLS_GENERATE_STREAM_H_

#include <cstddef>

#include "services/gateway/api/answers/error_shape.h"
#include "tandem/v1/generate.pb.h"

namespace tandem::gateway {

// Called on the strand.
class StreamListener {
 public:
  virtual ~StreamListener() = default;

  // The next message comes after Next.
  virtual void OnMessage(size_t choice, const v1::GenerateResponse& message) = 0;
  // The last call.
  virtual void OnEnd(size_t choice, const CallEnd& end) = 0;
};

// A call has a stream to the router of its own (own_stream.h), or is one of many calls of a stream
// (shared_call.h). It has begun when it is made, and the first message comes without Next. Used on
// the strand.
class GenerateStream {
 public:
  virtual ~GenerateStream() = default;

  // Asks for the next message. PRECOND: a message has come since the last call, or OnEnd has.
  virtual void Next() = 0;
  // The listener gets no more messages, and its OnEnd soon.
  virtual void Cancel() = 0;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_CALLS_GENERATE_STREAM_H_
