// The server's end of one GenerateMany stream.
#ifndef TANDEM_SERVICES_ROUTER_CLIENT_CALLS_MANY_MANY_STREAM_H_
#define TANDEM_SERVICES_ROUTER_CLIENT_CALLS_MANY_MANY_STREAM_H_

#include <grpcpp/completion_queue.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "common/rpc/call_lifetime.h"
#include "services/router/admission/refusal.h"
#include "services/router/client_calls/client_call.h"
#include "services/router/client_calls/many/many_call.h"
#include "tandem/v1/generate.grpc.pb.h"

namespace tandem {

struct ManyLimits {
  size_t calls = 0;          // calls of one stream that are under way
  size_t message_bytes = 0;  // size of a message that gRPC sends or receives
};

// Waits for a client, then carries its calls. The events of all calls wait together until the owner
// flushes them and the message before them is on its way. Everything runs on the thread that polls
// the completion queue.
class ManyStream final : public CallLifetime {
 public:
  class Owner {
   public:
    // Returns why the client may not have the stream, or OK.
    virtual absl::Status OnOpened(ManyStream& stream) = 0;
    // The client begins a call. The owner adds it to the stream, and gives it to whoever takes
    // calls. The refusal says why the stream takes none.
    virtual void OnCall(ManyStream& stream, v1::GenerateManyRequest begin,
                        std::optional<Refusal> refusal) = 0;
    // The stream has events to write. The owner calls Flush soon, so that one message takes all
    // events of a round. Called once before each Flush.
    virtual void OnEvents(ManyStream& stream) = 0;
    // gRPC has released the stream. The owner may destroy it now, and not before. Its calls were
    // closed before.
    virtual void OnClosed(ManyStream& stream) = 0;

   protected:
    ~Owner() = default;
  };

  // `calls` owns the stream's calls.
  ManyStream(const ManyLimits& limits, Owner* owner, ClientCall::Owner* calls)
      : limits_(limits), owner_(owner), calls_owner_(calls) {}

  void WaitForClient(v1::Generation::AsyncService* service, grpc::ServerCompletionQueue* queue);

  const grpc::ServerContext& context() const { return context_; }
  // Cancels the calls, and ends the stream after what its calls have. Does nothing before a client
  // has come.
  void Finish(const absl::Status& status);
  void Flush();

  // For the stream's calls.
  void Add(ManyCall& call) { calls_.emplace(call.number(), &call); }
  // The call has something for the client.
  void SetReady(ManyCall& call);

 private:
  void OnOpened(bool ok);
  void OnGreeted(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);
  void OnDone(bool ok);
  void OnQuiet() override { owner_->OnClosed(*this); }

  void Handle(v1::GenerateManyRequest& message);
  void Begin(v1::GenerateManyRequest message);
  std::optional<Refusal> RefusalOf(const v1::GenerateManyRequest& message) const;
  // The client has broken the rules. The stream ends without what its calls have.
  void Abort(const absl::Status& status);
  void Cancel(ManyCall& call, const absl::Status& why);
  // The client is gone, or has broken the rules.
  void CancelAll();
  void WriteNext();
  // Takes events for one message. Calls whose end it takes leave the stream.
  v1::GenerateManyResponse TakeEvents();
  // Lets go of calls that have left. Called where no caller uses a call.
  void CloseLeft();

  const ManyLimits limits_;
  Owner* owner_;
  ClientCall::Owner* calls_owner_;
  grpc::ServerContext context_;
  v1::GenerateManyRequest request_;
  grpc::ServerAsyncReaderWriter<v1::GenerateManyResponse, v1::GenerateManyRequest> stream_{
      &context_};
  std::unordered_map<uint64_t, ManyCall*> calls_;  // by number; those whose end was not taken
  std::deque<ManyCall*> ready_;                    // those that have something for the client
  std::vector<ManyCall*> left_;
  std::optional<absl::Status> status_;  // how the stream ends
  bool reads_ = true;                   // the client may begin calls
  bool waits_for_flush_ = false;
  bool finishing_ = false;
  Operation<ManyStream> open_{this, &ManyStream::OnOpened};
  Operation<ManyStream> greet_{this, &ManyStream::OnGreeted};
  Operation<ManyStream> read_{this, &ManyStream::OnRead};
  Operation<ManyStream> write_{this, &ManyStream::OnWritten};
  Operation<ManyStream> finish_{this, &ManyStream::OnFinished};
  Operation<ManyStream> done_{this, &ManyStream::OnDone};
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_CLIENT_CALLS_MANY_MANY_STREAM_H_
