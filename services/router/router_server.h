// The router process: gRPC on both sides of the engine, on one thread.
#ifndef TANDEM_SERVICES_ROUTER_ROUTER_SERVER_H_
#define TANDEM_SERVICES_ROUTER_ROUTER_SERVER_H_

#include <grpcpp/alarm.h>
#include <grpcpp/server.h>

#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/metrics/admin_server.h"
#include "common/rpc/address.h"
#include "common/rpc/listener.h"
#include "common/rpc/worker_channel.h"
#include "common/security/call_gate.h"
#include "common/security/server_security.h"
#include "services/router/background_work.h"
#include "services/router/fleet.h"
#include "services/router/generate_call.h"
#include "services/router/live_history.h"
#include "services/router/pod_directory.h"
#include "services/router/request_log.h"
#include "services/router/request_validator.h"
#include "services/router/router_metrics.h"
#include "services/router/router_options.h"
#include "services/router/signal_watcher.h"
#include "services/router/target_folder.h"
#include "services/router/unary_method.h"
#include "services/router/worker_streams.h"
#include "tandem/v1/generate.grpc.pb.h"

namespace tandem {

// One completion queue carries the clients' calls and the workers' streams, and one thread polls it and runs the engine:
// between a worker's reply and the next command there is no other thread. Health and reflection are gRPC's own.
//
// Life: Start, then Run, which returns when a signal has drained the server (OK), or when the engine gave up.
class RouterServer final : public GenerateCall::Owner, public WorkerStreams::Owner {
 public:
  static absl::StatusOr<std::unique_ptr<RouterServer>> Create(const RouterOptions& options,
                                                              TargetFolder target);
  ~RouterServer();

  // Listens, and begins to attach.
  absl::Status Start();
  // `on_ready` is called once, with the address that clients can use, when requests can be served.
  absl::Status Run(const std::function<void(const std::string& address)>& on_ready);

 private:
  enum class Phase { kServing, kDraining, kClosing, kClosed };

  RouterServer(const RouterOptions& options, TargetFolder target, Address listen,
               std::optional<Address> admin, PodDirectory pods);

  void OnOpened(GenerateCall& call) override;
  void OnCancelled(GenerateCall& call) override;
  void OnClosed(GenerateCall& call, bool opened) override;
  void OnDraftReply(SessionId session, v1::DraftReply& reply) override;
  void OnVerifierReply(SessionId session, v1::VerifierReply& reply) override;
  void OnSessionLost(Worker worker, SessionId session, const std::string& why) override;
  void OnPong(Worker worker, SessionId session, const v1::WatchPong& pong) override;
  void OnSignal(int number);
  void OnShutDown(bool ok);

  void WarnOfOpenDoors() const;
  absl::Status StartAdmin();
  void RefreshMetrics();
  void WaitForGenerate();
  // Runs `work` here when it is short, else in the background; then `done` here. False: too much waits already.
  void FinishCallWith(GenerateCall& call, const absl::Status& status, int emitted_tokens,
                      int retry_milliseconds, const std::optional<SlotLife>& slot);
  // Without a line in the log.
  void Finish(GenerateCall& call, const absl::Status& status, int emitted_tokens,
              int retry_milliseconds);
  bool RunWork(bool is_long, std::function<void()> work, std::function<void()> done);
  void OnValidated(CallId call, double arrived_at, absl::StatusOr<GenerationRequest> request);
  void WaitForOthers();
  void LookForPods();
  void OnPodsFound(const absl::StatusOr<std::vector<PodSpec>>& found);
  void ExecuteCommands();
  void Execute(EngineCommand& command);
  void PollUntilShutDown();
  void SetServing(bool serving);
  void UpdateReadiness(const std::function<void(const std::string&)>& on_ready);
  void AdvancePhase();
  double NextDeadline() const;
  ServedModel Served() const;
  void FillServerInfo(v1::ServerInfo* info) const;
  const std::string& model_name() const {
    return options_.model_name.empty() ? target_.name : options_.model_name;
  }

  const RouterOptions options_;
  const TargetFolder target_;
  const Address listen_;
  const std::optional<Address> admin_address_;
  const PodDirectory directory_;
  ServerSecurity security_;
  WorkerTls worker_tls_;
  std::mutex random_mutex_;  // requests are validated on two threads
  std::mt19937_64 random_;
  RequestValidator validator_;
  RouterMetrics metrics_;
  LiveHistory live_;
  const double unix_offset_;  // Unix time at 0 of the monotonic clock: never goes back
  Fleet fleet_;
  RequestLog log_;
  double metrics_refreshed_at_ = 0;
  double live_sampled_at_ = 0;
  std::atomic<bool> ready_ = false;  // serving_, for the admin server's thread
  std::unique_ptr<AdminServer> admin_;

  std::shared_ptr<CallGate> gate_;
  ReplyBudget unread_replies_;
  v1::Generation::AsyncService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<WorkerStreams> workers_;
  std::optional<SignalWatcher> signals_;
  std::optional<BackgroundWork> background_;
  std::optional<BackgroundWork> lookups_;  // of pods, where they can change: a name may take long

  std::unordered_map<CallId, std::unique_ptr<GenerateCall>> calls_;
  size_t num_open_calls_ = 0;
  CallId last_call_ = 0;
  std::optional<UnaryMethod<v1::TokenizeRequest, v1::TokenizeResponse>> tokenize_;
  std::optional<UnaryMethod<v1::DetokenizeRequest, v1::DetokenizeResponse>> detokenize_;
  std::optional<UnaryMethod<v1::GetServerInfoRequest, v1::ServerInfo>> server_info_;

  Phase phase_ = Phase::kServing;
  double started_at_ = 0;
  double drain_until_ = 0;
  double look_for_pods_at_ = std::numeric_limits<double>::infinity();
  std::string lookup_complaint_;  // said once, not with every look
  std::set<int> signals_seen_;
  bool announced_ = false;
  bool serving_ = false;  // what the health service says
  absl::Status exit_status_;
  std::thread shutdown_;
  bool shut_down_ = false;
  grpc::Alarm shut_down_alarm_;
  MemberTag<RouterServer> shut_down_tag_{this, &RouterServer::OnShutDown};
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ROUTER_SERVER_H_
