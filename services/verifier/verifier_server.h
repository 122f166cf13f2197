// The verifier as a server: sessions of routers, and the socket that hands rings to drafters.
#ifndef TANDEM_SERVICES_VERIFIER_VERIFIER_SERVER_H_
#define TANDEM_SERVICES_VERIFIER_VERIFIER_SERVER_H_

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/ring/ring_socket.h"
#include "services/verifier/verifier_session.h"
#include "services/worker/server_setup.h"
#include "services/worker/worker_model.h"
#include "services/worker/worker_server.h"

namespace tandem {

class VerifierServer final : public WorkerServer {
 public:
  // How a session judges; null: on the host.
  using MakeJudge = std::unique_ptr<Judge> (*)(LlamaModel& model);

  // `model` must outlive it. A ring folder of its own that cannot be had only costs the `shm`
  // transport; one that was asked for by name is an error.
  static absl::StatusOr<std::unique_ptr<VerifierServer>> Start(
      const WorkerEndpoint& endpoint, const WorkerModel& model,
      const std::filesystem::path& ring_dir, MakeJudge make_judge = nullptr);

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
  VerifierServer() = default;

  VerifierRings rings_;
  std::unique_ptr<RingListener> ring_listener_;
  std::unique_ptr<VerifierSessionServer> sessions_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_VERIFIER_VERIFIER_SERVER_H_
