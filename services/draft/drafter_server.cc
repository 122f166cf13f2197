#include "services/draft/drafter_server.h"

#include "common/status.h"
#include "services/draft/drafter_session.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<DrafterServer>> StartDrafterServer(const WorkerEndpoint& endpoint,
                                                                  ModelShelf& models,
                                                                  MakeProposer make_proposer) {
  using Handler = DrafterServer::Handler;
  TANDEM_ASSIGN_OR_RETURN(
      std::unique_ptr<DrafterServer> server,
      DrafterServer::Start(
          endpoint,
          [&models, make_proposer](const v1::Attach& attach) {
            return [claim = models.ClaimModel(attach.model()),
                    make_proposer]() -> absl::StatusOr<std::unique_ptr<Handler>> {
              TANDEM_ASSIGN_OR_RETURN(WorkerModel* const model, claim.Model());
              if (model == nullptr) return nullptr;
              return std::make_unique<DrafterSession>(
                  model, make_proposer == nullptr ? nullptr : make_proposer(model->model()));
            };
          },
          [&models] { return models.progress(); }));
  models.OnLoaded([bell = server->bell()] { bell->Ring(); });
  return server;
}

}  // namespace tandem
