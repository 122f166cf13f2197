// A call of Generate that is one of many on a stream.
#ifndef TANDEM_SERVICES_GATEWAY_CALLS_SHARED_CALL_H_
#define TANDEM_SERVICES_GATEWAY_CALLS_SHARED_CALL_H_

#include <boost/asio/any_io_executor.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "services/gateway/calls/generate_stream.h"
#include "tandem/v1/generate.pb.h"

namespace tandem::gateway {

class SharedStream;

// The largest part of a call's output that waits for a client that does not read. The router has
// the same limit for a call with a stream of its own (--stream-buffer-bytes).
inline constexpr size_t kMaxHeldBytes = 128 << 10;

// The stream gives a call its events as they come. What comes before Next waits here.
class SharedCall final : public GenerateStream, public std::enable_shared_from_this<SharedCall> {
 public:
  SharedCall(const boost::asio::any_io_executor& strand, size_t choice,
             std::shared_ptr<StreamListener> listener);

  // Called once, with the number that the stream gave.
  void SetStream(std::shared_ptr<SharedStream> stream, uint64_t number);

  void Next() override;
  void Cancel() override;

  const boost::asio::any_io_executor& strand() const { return strand_; }
  // Called on the strand, in the order of the events.
  void OnEvent(const v1::CallEvent& event);
  // The stream has ended. Called on the strand.
  void OnStreamEnd(const CallEnd& end);

 private:
  // What waits for Next: a response, or the end. Responses are serialized, because one with
  // log-probabilities takes seven times the memory as a message.
  struct Waiting {
    std::string response;
    std::optional<CallEnd> end;
  };

  // Whether an event can be given to the listener at once.
  bool IsReady() const { return wants_next_ && !is_in_listener_ && waiting_.empty(); }
  void Give(const v1::GenerateResponse& response);
  void Wait(Waiting waiting);
  // Gives what waits, as long as the listener wants it.
  void GiveWaiting();
  void End(const CallEnd& end);

  const boost::asio::any_io_executor strand_;
  const size_t choice_;
  std::shared_ptr<StreamListener> listener_;  // null: the call has ended
  std::shared_ptr<SharedStream> stream_;
  uint64_t number_ = 0;
  std::deque<Waiting> waiting_;
  size_t waiting_bytes_ = 0;
  bool wants_next_ = true;
  bool is_in_listener_ = false;
  bool is_canceled_ = false;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_CALLS_SHARED_CALL_H_
