#include "services/verifier/verifier_server.h"

#include <spdlog/spdlog.h>

#include <string>
#include <utility>

#include "common/status.h"
#include "services/verifier/verifier_session.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<VerifierServer>> VerifierServer::Start(
    const WorkerEndpoint& endpoint, WorkerModel& model, const std::filesystem::path& ring_dir,
    MakeJudge make_judge) {
  std::unique_ptr<VerifierServer> server(new VerifierServer(&model));
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
                              [self, &model, make_judge](const v1::Attach& attach) {
                                return [=, &model, named = attach.model()] {
                                  return self->Open(model, named, make_judge);
                                };
                              },
                              [&model] { return model.model().progress(); }));
  return server;
}

absl::StatusOr<std::unique_ptr<VerifierSessionServer::Handler>> VerifierServer::Open(
    WorkerModel& model, const std::string& named, MakeJudge make_judge) {
  if (!named.empty()) {
    return InvalidArgument("model: got \"" + named + "\", but a verifier has one model");
  }
  return std::make_unique<VerifierSession>(
      &model, ring_listener_.get(), &shared_,
      make_judge == nullptr ? nullptr : make_judge(model.model()));
}

void VerifierServer::RemoveFiles() {
  sessions_->RemoveFiles();
  if (ring_listener_ != nullptr) ring_listener_->RemoveFiles();
}

}  // namespace tandem
