// A stream to the router that carries many calls of Generate.
#ifndef TANDEM_SERVICES_GATEWAY_CALLS_SHARED_STREAM_H_
#define TANDEM_SERVICES_GATEWAY_CALLS_SHARED_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "services/gateway/calls/shared_call.h"
#include "tandem/v1/generate.grpc.pb.h"

namespace tandem::gateway {

// Thread-safe. One message of the router has what many calls have. It goes to a thread of the calls
// as one piece of work, which gives each call its event on the call's strand. So a token costs
// neither a message nor a change of threads of its own.
class SharedStream final
    : public grpc::ClientBidiReactor<v1::GenerateManyRequest, v1::GenerateManyResponse>,
      public std::enable_shared_from_this<SharedStream> {
 public:
  using Clock = std::chrono::steady_clock;

  grpc::ClientContext* context() { return &context_; }
  // Called once, with the context filled in. The stream keeps itself alive until it has ended.
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
  // Ends the stream and waits until it has ended. Its calls end.
  void Close();

 private:
  // kEnding: nothing more comes, and nothing is begun any more.
  enum class State { kOpening, kOpen, kRetired, kEnding, kEnded };
  // An event of a message, for a call.
  struct Delivery {
    std::shared_ptr<SharedCall> call;
    int event;
  };

  void OnReadInitialMetadataDone(bool ok) override;
  size_t LimitOf(const char* key) const;
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  std::vector<Delivery> DeliveriesOf(const v1::GenerateManyResponse& message);
  // Whether the client may write. Until the state is kEnding, gRPC is held, so that operations can
  // begin. PRECOND: mutex_ is held.
  bool may_write() const { return state_ == State::kOpen || state_ == State::kRetired; }
  // Adds a message to those that are written. Returns whether the caller must call WriteNext.
  // PRECOND: mutex_ is held, and may_write().
  bool Put(v1::GenerateManyRequest message);
  void WriteNext();
  // Ends the client's side of a retired stream that has no calls. mutex_ is not held.
  void EndIfIdle();

  grpc::ClientContext context_;
  Clock::time_point started_at_ = Clock::now();
  v1::GenerateManyResponse message_;
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  State state_ = State::kOpening;  // guarded by mutex_
  // By number. Null: canceled, and its end is still to come.
  std::unordered_map<uint64_t, std::shared_ptr<SharedCall>> calls_;  // guarded by mutex_
  size_t max_calls_ = 0;          // guarded by mutex_; that the stream has at a time
  size_t max_request_bytes_ = 0;  // guarded by mutex_
  uint64_t last_call_ = 0;        // guarded by mutex_
  // Guarded by mutex_. The first one is being written if is_writing_.
  std::deque<v1::GenerateManyRequest> outbox_;
  bool is_writing_ = false;             // guarded by mutex_
  bool is_half_closed_ = false;         // guarded by mutex_
  std::shared_ptr<SharedStream> self_;  // guarded by mutex_; set until the end
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_CALLS_SHARED_STREAM_H_
