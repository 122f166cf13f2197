// A stream to the router that carries many calls of Generate.
#ifndef TANDEM_SERVICES_GATEWAY_CALLS_SHARED_STREAM_H_
#define TANDEM_SERVICES_GATEWAY_CALLS_SHARED_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/async_stream.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "common/rpc/async_tag.h"
#include "services/gateway/calls/call_queue.h"
#include "services/gateway/calls/shared_call.h"
#include "tandem/v1/generate.grpc.pb.h"

namespace tandem::gateway {

// Thread-safe. One message of the router has what many calls have. The thread that waits for the
// router gives each call its event on the call's strand. So a token costs neither a message nor a
// change of threads of its own.
class SharedStream final : public std::enable_shared_from_this<SharedStream> {
 public:
  using Clock = std::chrono::steady_clock;

  // `queue` outlives the stream, and the owner keeps the stream until it has ended.
  explicit SharedStream(CallQueue* queue) : queue_(queue) {}

  grpc::ClientContext* context() { return &context_; }
  // Called once, with the context filled in.
  void Start(v1::Generation::Stub& stub);
  Clock::time_point started_at() const { return started_at_; }

  // Whether the router has taken the stream, and the stream has room for a call.
  bool takes_calls() const;
  // Whether the router has not answered yet.
  bool is_opening() const;
  bool has_ended() const;
  // Begins a call. `message` has everything but the number. Returns false, and leaves the message
  // as it is, if the stream takes no calls, or none with so large a request.
  bool Begin(v1::GenerateManyRequest* message, const std::shared_ptr<SharedCall>& call);
  // The call gets no more events.
  void Cancel(uint64_t call);
  // Takes no more calls, and ends after those that it has.
  void Retire();
  // The stream and its calls end soon.
  void Close() { context_.TryCancel(); }

 private:
  // kEnding: nothing more comes, and nothing is begun any more. kFinished: the status is there, and
  // a write may be under way.
  enum class State { kOpening, kOpen, kRetired, kEnding, kFinished, kEnded };
  // An event of a message, for a call.
  struct Delivery {
    std::shared_ptr<SharedCall> call;
    int event;
  };

  // Called by the queue.
  void OnStarted(bool ok);
  void OnMetadata(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);

  size_t LimitOf(const char* key) const;
  void Read() { stream_->Read(message_.get(), read_.get()); }
  // Asks for the status.
  void Finish();
  // Nothing of the stream is in the queue any more.
  void End();
  std::vector<Delivery> DeliveriesOf(const v1::GenerateManyResponse& message);
  // Whether the client may write. PRECOND: mutex_ is held.
  bool may_write() const { return state_ == State::kOpen || state_ == State::kRetired; }
  // Adds a message to those that are written. Returns whether the caller must call WriteNext.
  // PRECOND: mutex_ is held, and may_write().
  bool Put(v1::GenerateManyRequest message);
  void WriteNext();
  // Ends the client's side of a retired stream that has no calls. mutex_ is not held.
  void EndIfIdle();

  CallQueue* const queue_;
  grpc::ClientContext context_;
  const Clock::time_point started_at_ = Clock::now();
  std::unique_ptr<grpc::ClientAsyncReaderWriter<v1::GenerateManyRequest, v1::GenerateManyResponse>>
      stream_;
  std::shared_ptr<v1::GenerateManyResponse> message_;  // the next one
  grpc::Status status_;
  MemberTag<SharedStream> start_{this, &SharedStream::OnStarted};
  MemberTag<SharedStream> metadata_{this, &SharedStream::OnMetadata};
  MemberTag<SharedStream> read_{this, &SharedStream::OnRead};
  MemberTag<SharedStream> write_{this, &SharedStream::OnWritten};
  MemberTag<SharedStream> finish_{this, &SharedStream::OnFinished};
  mutable std::mutex mutex_;
  State state_ = State::kOpening;  // guarded by mutex_
  // By number. Null: canceled, and its end is still to come.
  std::unordered_map<uint64_t, std::shared_ptr<SharedCall>> calls_;  // guarded by mutex_
  size_t max_calls_ = 0;          // guarded by mutex_; that the stream has at a time
  size_t max_request_bytes_ = 0;  // guarded by mutex_
  uint64_t last_call_ = 0;        // guarded by mutex_
  // Guarded by mutex_. The first one is being written.
  std::deque<v1::GenerateManyRequest> outbox_;
  bool is_writing_ = false;      // guarded by mutex_; also the end of the client's side
  bool is_half_closed_ = false;  // guarded by mutex_
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_CALLS_SHARED_STREAM_H_
