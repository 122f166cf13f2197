#include "services/verifier/verifier_server.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "common/status.h"
#include "services/verifier/verifier_session.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<VerifierServer>> VerifierServer::Start(
    const WorkerEndpoint& endpoint, WorkerModel& model, const std::filesystem::path& ring_dir,
    MakeJudge make_judge) {
  std::unique_ptr<VerifierServer> server(new VerifierServer());
  auto listener = RingListener::Start(ring_dir);
  if (listener.ok()) {
    server->ring_listener_ = *std::move(listener);
  } else if (!ring_dir.empty()) {
    return listener.status();
  } else {
    spdlog::warn("drafters cannot share memory with this verifier: {}",
                 std::string(listener.status().message()));
  }
  VerifierServer* self = server.get();
  TANDEM_ASSIGN_OR_RETURN(server->sessions_,
                          VerifierSessionServer::Start(
                              endpoint,
                              [self, &model, make_judge] {
                                return std::make_unique<VerifierSession>(
                                    &model, self->ring_listener_.get(), &self->rings_,
                                    make_judge == nullptr ? nullptr : make_judge(model.model()));
                              },
                              [&model] { return model.model().progress(); }));
  return server;
}

void VerifierServer::RemoveFiles() {
  sessions_->RemoveFiles();
  if (ring_listener_ != nullptr) ring_listener_->RemoveFiles();
}

}  // namespace tandem
