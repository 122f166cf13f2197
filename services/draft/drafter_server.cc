#include "services/draft/drafter_server.h"

#include "services/draft/drafter_session.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<DrafterServer>> StartDrafterServer(const WorkerEndpoint& endpoint,
                                                                  WorkerModel& model,
                                                                  MakeProposer make_proposer) {
  return DrafterServer::Start(
      endpoint,
      [&model, make_proposer] {
        return std::make_unique<DrafterSession>(
            &model, make_proposer == nullptr ? nullptr : make_proposer(model.model()));
      },
      [&model] { return model.model().progress(); });
}

}  // namespace tandem
