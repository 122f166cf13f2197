// The verifier as a server: sessions of routers that share one model, and the socket that hands
// rings to drafters.
#ifndef TANDEM_SERVICES_VERIFIER_VERIFIER_SERVER_H_
#define TANDEM_SERVICES_VERIFIER_VERIFIER_SERVER_H_

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/ring/ring_socket.h"
#include "services/verifier/judge.h"
#include "services/verifier/verifier_shared.h"
#include "services/worker/session/server_setup.h"
#include "services/worker/session/session_server.h"
#include "services/worker/session/worker_server.h"
#include "services/worker/worker_model.h"
#include "tandem/v1/worker.grpc.pb.h"

namespace tandem {

using VerifierSessionServer =
    SessionServer<v1::VerifierWorker, v1::VerifierCommand, v1::VerifierReply>;

class VerifierServer final : public WorkerServer {
 public:
  // Makes the judge of a session. A null judge means that the session judges on the host.
  using MakeJudge = std::unique_ptr<Judge> (*)(LanguageModel& model);

  // Listens. `model` must outlive the server. Without `make_judge` all sessions judge on the host.
  // The socket that hands out rings is in `ring_dir`, or in a new folder if `ring_dir` is empty. If
  // a new folder cannot be made, the server only lacks the transports over shared memory. A given
  // folder that cannot be used is an error.
  static absl::StatusOr<std::unique_ptr<VerifierServer>> Start(
      const WorkerEndpoint& endpoint, WorkerModel& model, const std::filesystem::path& ring_dir,
      MakeJudge make_judge = nullptr);

  const std::string& address() const override { return sessions_->address(); }
  void Run() override { sessions_->Run(); }
  void AfterEachCommand(std::function<void()> call) override {
    sessions_->AfterEachCommand(std::move(call));
  }
  void ReportLoad(uint32_t num_open_slots, uint32_t num_free_pages) override {
    sessions_->ReportLoad(num_open_slots, num_free_pages);
  }
  void AwaitDrain() override { sessions_->AwaitDrain(); }
  void HurryDrain() override { sessions_->HurryDrain(); }
  void Stop() override { sessions_->Stop(); }
  void RemoveFiles() override;

 private:
  explicit VerifierServer(WorkerModel* model) : shared_(model) {}
  // `named`: as of v1.Attach. A verifier has no model but its own.
  absl::StatusOr<std::unique_ptr<VerifierSessionServer::Handler>> Open(WorkerModel& model,
                                                                       const std::string& named,
                                                                       MakeJudge make_judge);

  VerifierShared shared_;
  std::unique_ptr<RingListener> ring_listener_;
  std::unique_ptr<VerifierSessionServer> sessions_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_VERIFIER_VERIFIER_SERVER_H_
