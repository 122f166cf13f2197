// The drafter as a server: sessions of routers, each with the model that it names.
#ifndef TANDEM_SERVICES_DRAFT_DRAFTER_SERVER_H_
#define TANDEM_SERVICES_DRAFT_DRAFTER_SERVER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/model/language_model.h"
#include "services/draft/proposer.h"
#include "services/worker/model_shelf.h"
#include "services/worker/session/server_setup.h"
#include "services/worker/session/session_server.h"
#include "tandem/v1/worker.grpc.pb.h"

namespace tandem {

using DrafterServer = SessionServer<v1::DraftWorker, v1::DraftCommand, v1::DraftReply>;

// Makes the proposer of a session. A null proposer means that the session drafts on the host.
using MakeProposer = std::unique_ptr<Proposer> (*)(LanguageModel& model);

// Listens. `models` must outlive the server. Without `make_proposer`, all sessions draft on the
// host.
absl::StatusOr<std::unique_ptr<DrafterServer>> StartDrafterServer(
    const WorkerEndpoint& endpoint, ModelShelf& models, MakeProposer make_proposer = nullptr);

}  // namespace tandem

#endif  // TANDEM_SERVICES_DRAFT_DRAFTER_SERVER_H_
