// The gRPC streams behind the engine's sessions.
#ifndef TANDEM_SERVICES_ROUTER_SERVER_WORKER_STREAMS_H_
#define TANDEM_SERVICES_ROUTER_SERVER_WORKER_STREAMS_H_

#include <grpcpp/completion_queue.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "common/rpc/address.h"
#include "common/rpc/client_stream.h"
#include "common/rpc/worker_channel.h"
#include "services/router/engine/engine_command.h"
#include "tandem/v1/worker.grpc.pb.h"

namespace tandem {

// Each session has one stream, on a channel of its own. A worker that came back is therefore
// reached at once, even if an older connection waits in gRPC's back-off. Everything runs on the
// thread that polls the completion queue.
class WorkerStreams {
 public:
  class Owner {
   public:
    virtual void OnDraftReply(SessionId session, v1::DraftReply& reply) = 0;
    virtual void OnVerifierReply(SessionId session, v1::VerifierReply& reply) = 0;
    // The stream ended, and not because of Close.
    virtual void OnSessionLost(Worker worker, SessionId session, const std::string& why) = 0;
    virtual void OnPong(Worker worker, SessionId session, const v1::WatchPong& pong) = 0;

   protected:
    ~Owner() = default;
  };

  // `queue` and `owner` must outlive the object.
  WorkerStreams(WorkerTls tls, grpc::CompletionQueue* queue, Owner* owner);

  void Open(Worker worker, SessionId session, const Address& address);
  void Close(SessionId session);
  void Send(SessionId session, v1::DraftCommand command);
  void Send(SessionId session, v1::VerifierCommand command);
  // Pings on a second stream, over the connection of the session. The first ping opens the stream.
  void Ping(Worker worker, SessionId session, uint64_t token);

  void CloseAll();
  // Returns true once gRPC has released every stream.
  bool quiet() const {
    return drafter_sessions_.empty() && verifier_sessions_.empty() && watches_.empty();
  }

 private:
  template <typename Service, typename Command, typename Reply>
  struct Session {
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<typename Service::Stub> stub;
    std::unique_ptr<ClientStream<Command, Reply>> stream;
    bool given_up = false;
  };
  template <typename Service, typename Command, typename Reply>
  using Sessions = std::unordered_map<SessionId, Session<Service, Command, Reply>>;

  struct Watch {
    std::unique_ptr<v1::WorkerHealth::Stub> stub;
    std::unique_ptr<ClientStream<v1::WatchPing, v1::WatchPong>> stream;
  };

  // Returns null if the session is over.
  std::shared_ptr<grpc::Channel> Channel(SessionId session) const;
  template <typename Service, typename Command, typename Reply>
  void OpenStream(Worker worker, SessionId session, const Address& address,
                  Sessions<Service, Command, Reply>* sessions,
                  void (Owner::*on_message)(SessionId, Reply&));
  void StopWatching(SessionId session);

  WorkerTls tls_;
  grpc::CompletionQueue* queue_;
  Owner* owner_;
  Sessions<v1::DraftWorker, v1::DraftCommand, v1::DraftReply> drafter_sessions_;
  Sessions<v1::VerifierWorker, v1::VerifierCommand, v1::VerifierReply> verifier_sessions_;
  std::unordered_map<SessionId, Watch> watches_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_SERVER_WORKER_STREAMS_H_
