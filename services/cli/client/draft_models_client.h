// Calls the operator's API of a router: proto/tandem/v1/draft_models.proto.
#ifndef TANDEM_SERVICES_CLI_CLIENT_DRAFT_MODELS_CLIENT_H_
#define TANDEM_SERVICES_CLI_CLIENT_DRAFT_MODELS_CLIENT_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/cli/client/client_security.h"
#include "tandem/v1/draft_models.pb.h"

namespace tandem::cli {

// Statuses come from the server unchanged. Calls block, and return the draft models as they are
// after the call.
class DraftModelsClient {
 public:
  DraftModelsClient(const std::string& address, const ClientSecurity& security);
  ~DraftModelsClient();

  // UNAVAILABLE: nobody answered in time.
  absl::Status Connect(std::chrono::milliseconds timeout);

  using Answer = absl::StatusOr<v1::DraftModelList>;
  Answer List();
  Answer Load(const std::string& model, double share);
  Answer Promote();
  Answer RollBack();
  Answer Unload(const std::string& model);
  Answer SwapHeads(const std::string& heads);
  // `swapped`: as of v1.RollBackHeadsRequest.
  Answer RollBackHeads(const std::string& swapped = {});

 private:
  struct Impl;  // keeps gRPC's headers out of this header
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_CLIENT_DRAFT_MODELS_CLIENT_H_
