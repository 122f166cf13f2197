// Serves the sessions of one worker. One thread polls a completion queue, reads commands, and
// computes. gRPC's own threads answer pings meanwhile.
#ifndef TANDEM_SERVICES_WORKER_SESSION_SESSION_SERVER_H_
#define TANDEM_SERVICES_WORKER_SESSION_SESSION_SERVER_H_

#include <grpc/support/time.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rpc/address.h"
#include "common/rpc/async_tag.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/heartbeat.h"
#include "common/rpc/server_stream.h"
#include "common/status.h"
#include "services/worker/session/drain.h"
#include "services/worker/session/health_service.h"
#include "services/worker/session/queue_alarm.h"
#include "services/worker/session/queue_bell.h"
#include "services/worker/session/server_setup.h"
#include "services/worker/session/session_handler.h"
#include "services/worker/session/session_leases.h"
#include "services/worker/session/wire.h"
#include "services/worker/session/worker_server.h"

namespace tandem {

// `Service` is v1::DraftWorker or v1::VerifierWorker. The commands of all sessions are executed one
// after the other, in the order of their arrival, so handlers share the model without locks. A
// session ends when its stream or its lease ends.
template <typename Service, typename Command, typename Reply>
class SessionServer final : public WorkerServer {
 public:
  using Handler = SessionHandler<Command, Reply>;
  // Makes the handler of one session. Null: what the session names is still being loaded. It is
  // called again when the bell rings, and lives as long as the session.
  using Opening = std::function<absl::StatusOr<std::unique_ptr<Handler>>()>;
  // Begins to open a session whose first command has this `attach`. A session whose first command
  // is another one is opened too, with an empty message: its handler refuses the command.
  using Opener = std::function<Opening(const v1::Attach& attach)>;

  // Listens. The thread that is in Run calls `open` for each router that connects. Any thread calls
  // `progress`, which counts what the worker has computed.
  static absl::StatusOr<std::unique_ptr<SessionServer>> Start(
      const WorkerEndpoint& endpoint, Opener open, std::function<uint64_t()> progress,
      double lease_seconds = kLeaseSeconds) {
    std::unique_ptr<SessionServer> server(
        new SessionServer(endpoint.address, std::move(open), std::move(progress), lease_seconds));
    grpc::ServerBuilder builder;
    builder.RegisterService(&server->health_);
    server->queue_ = builder.AddCompletionQueue();
    server->bell_ = std::make_shared<QueueBell>(server->queue_.get(),
                                                [self = server.get()] { self->OnBell(); });
    TANDEM_ASSIGN_OR_RETURN(server->bound_, StartServer(endpoint, server->service_,
                                                        Service::service_full_name(), builder));
    return server;
  }

  ~SessionServer() override {
    Stop();
    Run();  // handles the rest of the queue
  }

  const std::string& address() const override { return bound_.address; }
  // To be rung when something was loaded that sessions may wait for.
  std::shared_ptr<QueueBell> bell() const { return bell_; }

  void Run() override {
    if (!stopping_) Accept();
    void* tag = nullptr;
    bool ok = false;
    while (queue_->Next(&tag, &ok)) static_cast<AsyncTag*>(tag)->Proceed(ok);
  }

  void AfterEachCommand(std::function<void()> call) override { after_command_ = std::move(call); }

  void ReportLoad(uint32_t num_open_slots, uint32_t num_free_pages) override {
    load_ = uint64_t{num_open_slots} << 32 | num_free_pages;
    drain_.SetOpenSlots(num_open_slots);
  }

  void AwaitDrain() override { drain_.Await(); }
  void HurryDrain() override { drain_.Hurry(); }

  void Stop() override {
    if (stopping_.exchange(true)) return;
    if (bound_.listener != nullptr) bound_.listener->Stop();
    if (bound_.server != nullptr) bound_.server->Shutdown(std::chrono::system_clock::now());
    // All calls are canceled now, but their last tags are still to come. The queue may close only
    // after these tags.
    drain_alarm_.Set(queue_.get(), gpr_now(GPR_CLOCK_MONOTONIC));
  }

  void RemoveFiles() override { RemoveSocket(bind_address_); }

 private:
  struct Session {
    Opening opening;  // outlives the handler
    std::unique_ptr<Handler> handler;
    std::unique_ptr<ServerStream<Command, Reply>> stream;
    std::optional<Command> waiting;  // the first command, while there is no handler
    uint64_t token = 0;              // 0: not attached
  };

  SessionServer(const Address& bind_address, Opener open, std::function<uint64_t()> progress,
                double lease_seconds)
      : bind_address_(bind_address),
        open_(std::move(open)),
        progress_(std::move(progress)),
        leases_(lease_seconds) {}

  // Waits for the next router.
  void Accept() {
    const auto session = sessions_.emplace(sessions_.end());
    session->stream = std::make_unique<ServerStream<Command, Reply>>(
        [this] {
          if (!stopping_) Accept();
        },
        [this, session](const Command& command) { Handle(*session, command); },
        [this, session](bool /*opened*/) {
          leases_.Close(session->token);
          sessions_.erase(session);
          after_command_();
          CloseQueueIfDrained();
        });
    session->stream->WaitForClient([this](grpc::ServerContext* context, auto* call, void* tag) {
      service_.RequestSession(context, call, queue_.get(), queue_.get(), tag);
    });
  }

  void Handle(Session& session, const Command& command) {
    if (session.handler != nullptr) return Compute(session, command);
    if (session.waiting.has_value()) {
      return session.stream->Close(
          ToGrpcStatus(FailedPrecondition("the session is not attached yet")));
    }
    session.waiting = command;
    session.opening = open_(command.attach());
    TryToOpen(session);
  }

  void TryToOpen(Session& session) {
    absl::StatusOr<std::unique_ptr<Handler>> handler = session.opening();
    if (handler.ok() && *handler == nullptr) return;
    const Command command = *std::exchange(session.waiting, std::nullopt);
    if (!handler.ok()) {
      Reply reply;
      reply.set_id(command.id());
      reply.mutable_error()->set_code(ToWorkerCode(handler.status().code()));
      reply.mutable_error()->set_message(std::string(handler.status().message()));
      session.stream->Write(std::move(reply));
      return session.stream->Close(ToGrpcStatus(handler.status()));
    }
    session.handler = *std::move(handler);
    Compute(session, command);
  }

  void OnBell() {
    for (Session& session : sessions_) {
      if (session.waiting.has_value()) TryToOpen(session);
    }
    CloseQueueIfDrained();
  }

  void Compute(Session& session, const Command& command) {
    auto& stream = *session.stream;
    computing_ = true;
    const absl::Status status = session.handler->Handle(command, [this, &stream](Reply reply) {
      if (reply.has_attach()) reply.mutable_attach()->set_lease_seconds(leases_.seconds());
      stream.Write(std::move(reply));
    });
    computing_ = false;
    after_command_();
    if (!status.ok()) return stream.Close(ToGrpcStatus(status));
    if (command.has_attach() && session.token == 0) {
      session.token = command.attach().session_token();
      leases_.Open(session.token);
      LookAtLeasesLater();
    }
  }

  v1::WatchPong Report() const {
    v1::WatchPong pong;
    pong.set_progress(progress_());
    pong.set_computing(computing_);
    pong.set_draining(drain_.begun());
    if (const uint64_t load = load_; load != kNoLoad) {
      pong.set_num_open_slots(static_cast<uint32_t>(load >> 32));
      pong.set_num_free_pages(static_cast<uint32_t>(load));
    }
    return pong;
  }

  // Sets the alarm for the next lease that may end. Every lease's end is noticed: a new lease
  // cannot end before an alarm that is already set.
  void LookAtLeasesLater() {
    if (lease_alarm_.is_set() || draining_) return;
    const auto now = SessionLeases::Clock::now();
    const auto next = leases_.NextLook(now);
    if (!next.has_value()) return;
    const auto wait = std::chrono::duration_cast<std::chrono::microseconds>(*next - now);
    lease_alarm_.Set(
        queue_.get(),
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                     gpr_time_from_micros(std::max<int64_t>(0, wait.count()) + 1, GPR_TIMESPAN)));
  }

  void OnLeaseAlarm() {
    for (const uint64_t token : leases_.TakeExpired(SessionLeases::Clock::now())) {
      for (Session& session : sessions_) {
        if (session.token == token) session.stream->Cancel();
      }
    }
    LookAtLeasesLater();
    CloseQueueIfDrained();
  }

  void OnDraining() {
    draining_ = true;
    bell_->Close();
    lease_alarm_.Cancel();
    CloseQueueIfDrained();
  }

  // Once the queue is closed, Run returns.
  void CloseQueueIfDrained() {
    const bool is_quiet = !lease_alarm_.is_set() && !bell_->sounds();
    if (draining_ && is_quiet && sessions_.empty()) queue_->Shutdown();
  }

  Address bind_address_;
  Opener open_;
  std::function<uint64_t()> progress_;
  std::function<void()> after_command_ = [] {};
  std::atomic<bool> computing_ = false;
  static constexpr uint64_t kNoLoad = ~uint64_t{0};  // nothing was reported yet
  std::atomic<uint64_t> load_ = kNoLoad;             // open slots << 32 | free pages
  Drain drain_;
  SessionLeases leases_;
  HealthService health_{&leases_, [this] { return Report(); }};
  typename Service::AsyncService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::shared_ptr<QueueBell> bell_;
  BoundServer bound_;  // empty until the server has started
  std::atomic<bool> stopping_ = false;
  std::list<Session> sessions_;  // the last one waits for a router
  bool draining_ = false;
  QueueAlarm drain_alarm_{[this] { OnDraining(); }};
  QueueAlarm lease_alarm_{[this] { OnLeaseAlarm(); }};
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_SESSION_SESSION_SERVER_H_
