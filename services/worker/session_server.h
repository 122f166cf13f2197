// Serves the sessions of one worker: a thread that polls a completion queue reads commands and computes right there.
#ifndef TANDEM_SERVICES_WORKER_SESSION_SERVER_H_
#define TANDEM_SERVICES_WORKER_SESSION_SERVER_H_

#include <grpc/support/time.h>
#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rpc/address.h"
#include "common/rpc/async_tag.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/server_stream.h"
#include "common/status.h"
#include "services/worker/server_setup.h"
#include "services/worker/worker_server.h"

namespace tandem {

// One session: what a worker does for one router. Destroyed when the router's stream ends.
template <typename Command, typename Reply>
class SessionHandler {
 public:
  using Emit = std::function<void(Reply)>;
  virtual ~SessionHandler() = default;
  // Answers a command through `emit`, which may be called any number of times before this returns. A status that is
  // not OK ends the session with it, after what was emitted.
  virtual absl::Status Handle(const Command& command, const Emit& emit) = 0;
};

// Service: v1::DraftWorker or v1::VerifierWorker. Commands of all sessions are executed one after the other, in the
// order in which they come: handlers share the model without locks.
template <typename Service, typename Command, typename Reply>
class SessionServer final : public WorkerServer {
 public:
  using Handler = SessionHandler<Command, Reply>;
  using HandlerFactory = std::function<std::unique_ptr<Handler>()>;

  // Listens. `make_handler` is called by the thread that runs, for each router that comes.
  static absl::StatusOr<std::unique_ptr<SessionServer>> Start(const Address& address,
                                                              HandlerFactory make_handler) {
    std::unique_ptr<SessionServer> server(new SessionServer(address, std::move(make_handler)));
    grpc::ServerBuilder builder;
    server->queue_ = builder.AddCompletionQueue();
    TANDEM_ASSIGN_OR_RETURN(BoundServer bound, StartServer(address, server->service_,
                                                           Service::service_full_name(), builder));
    server->server_ = std::move(bound.server);
    server->address_ = std::move(bound.address);
    return server;
  }

  ~SessionServer() override {
    Stop();
    Run();  // what is left in the queue
  }

  const std::string& address() const override { return address_; }

  void Run() override {
    if (!stopping_) Accept();
    void* tag = nullptr;
    bool ok = false;
    while (queue_->Next(&tag, &ok)) static_cast<AsyncTag*>(tag)->Proceed(ok);
  }

  void Stop() override {
    if (stopping_.exchange(true)) return;
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
    // All calls are cancelled now, but their last tags are still to come: the queue may close only after them.
    drain_alarm_.Set(queue_.get(), gpr_now(GPR_CLOCK_MONOTONIC), drain_tag_.get());
  }

  void RemoveFiles() override { RemoveSocket(bind_address_); }

 private:
  struct Session {
    std::unique_ptr<Handler> handler;
    std::unique_ptr<ServerStream<Command, Reply>> stream;
  };

  SessionServer(const Address& bind_address, HandlerFactory make_handler)
      : bind_address_(bind_address), make_handler_(std::move(make_handler)) {}

  // Waits for the next router.
  void Accept() {
    const auto session = sessions_.emplace(sessions_.end());
    session->stream = std::make_unique<ServerStream<Command, Reply>>(
        [this, session] {
          session->handler = make_handler_();
          if (!stopping_) Accept();
        },
        [session](const Command& command) {
          auto& stream = *session->stream;
          const absl::Status status = session->handler->Handle(
              command, [&stream](Reply reply) { stream.Write(std::move(reply)); });
          if (!status.ok()) stream.Close(ToGrpcStatus(status));
        },
        [this, session](bool /*opened*/) {
          sessions_.erase(session);
          CloseQueueIfDrained();
        });
    session->stream->WaitForClient([this](grpc::ServerContext* context, auto* call, void* tag) {
      service_.RequestSession(context, call, queue_.get(), queue_.get(), tag);
    });
  }

  void OnDraining(bool /*ok*/) {
    draining_ = true;
    CloseQueueIfDrained();
  }

  // After this Run returns.
  void CloseQueueIfDrained() {
    if (draining_ && sessions_.empty()) queue_->Shutdown();
  }

  Address bind_address_;
  HandlerFactory make_handler_;
  typename Service::AsyncService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::atomic<bool> stopping_ = false;
  std::list<Session> sessions_;  // the last one waits for a router
  bool draining_ = false;
  grpc::Alarm drain_alarm_;
  MemberTag<SessionServer> drain_tag_{this, &SessionServer::OnDraining};
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_SESSION_SERVER_H_
