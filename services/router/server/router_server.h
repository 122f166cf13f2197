// The router process: gRPC on both sides of the engine, on one thread.
#ifndef TANDEM_SERVICES_ROUTER_SERVER_ROUTER_SERVER_H_
#define TANDEM_SERVICES_ROUTER_SERVER_ROUTER_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/router/client_calls/background_work.h"
#include "services/router/client_calls/client_calls.h"
#include "services/router/engine/engine_command.h"
#include "services/router/fleet/fleet.h"
#include "services/router/request/request_validator.h"
#include "services/router/server/client_server.h"
#include "services/router/server/corpus_search.h"
#include "services/router/server/pod_lookup.h"
#include "services/router/server/router_options.h"
#include "services/router/server/signal_watcher.h"
#include "services/router/server/target_folder.h"
#include "services/router/server/worker_streams.h"
#include "services/router/watch/admin_pages.h"

namespace tandem {

// One completion queue carries the clients' calls and the workers' streams. One thread polls the
// queue and runs the engine, so that no change of threads lies between a worker's reply and the
// next command.
//
// Start is called once, then Run. Run returns OK after a signal has drained the server, and an
// error if the engine gave up. In phase kServing, the router takes requests. In kDraining, it takes
// none and finishes those that run. In kClosing, it ends the calls that are left, its streams to
// workers and its background work.
class RouterServer final : public WorkerStreams::Owner {
 public:
  // Listens, and begins to attach workers.
  static absl::StatusOr<std::unique_ptr<RouterServer>> Start(const RouterOptions& options,
                                                             TargetFolder target);
  ~RouterServer();

  // Calls `on_ready` once, with the address that clients can use, when requests can be served.
  absl::Status Run(const std::function<void(const std::string& address)>& on_ready);

 private:
  enum class Phase { kServing, kDraining, kClosing, kClosed };

  RouterServer(const RouterOptions& options, TargetFolder target, PromptEncoder encoder,
               const std::function<uint64_t()>& random);

  void OnDraftReply(SessionId session, v1::DraftReply& reply) override;
  void OnVerifierReply(SessionId session, v1::VerifierReply& reply) override;
  void OnSessionLost(Worker worker, SessionId session, const std::string& why) override;
  void OnPong(Worker worker, SessionId session, const v1::WatchPong& pong) override;
  // Ends the process with this status.
  void GiveUpWith(const absl::Status& status);
  void OnSignal(int number);
  void OnShutDown();

  // Begins to take calls and to attach workers.
  void Serve();
  void ServeCorpus(std::shared_ptr<const RetrievalIndex> index);
  // Carries out the fleet's commands.
  void ExecuteCommands();
  void Execute(EngineCommand& command);
  void OpenStream(const OpenSession& open);
  void Search(const SearchCorpus& search);
  void UpdateReadiness(const std::function<void(const std::string&)>& on_ready);
  void AdvancePhase();
  double NextDeadline() const;
  const std::string& model_name() const {
    return options_.model_name.empty() ? target_.name : options_.model_name;
  }

  const RouterOptions options_;
  const TargetFolder target_;
  RequestValidator validator_;
  AdminPages pages_;
  Fleet fleet_;

  std::unique_ptr<ClientServer> clients_;
  std::optional<WorkerStreams> workers_;
  std::optional<PodLookup> pods_;
  std::optional<SignalWatcher> signals_;
  std::optional<BackgroundWork> background_;
  std::optional<CorpusSearch> corpus_;  // none: no --retrieval
  std::optional<ClientCalls> calls_;

  Phase phase_ = Phase::kServing;
  std::optional<double> announce_by_;  // until then, drafters are awaited; none: announced
  double drain_until_ = 0;
  std::set<int> signals_seen_;
  absl::Status exit_status_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_SERVER_ROUTER_SERVER_H_
