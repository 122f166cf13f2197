// Calls a router for many lines at once.
#ifndef TANDEM_SERVICES_CLI_BATCH_BATCH_CLIENT_H_
#define TANDEM_SERVICES_CLI_BATCH_BATCH_CLIENT_H_

#include <functional>
#include <memory>
#include <string>

#include "services/cli/client/client_security.h"
#include "services/gateway/api/answers/error_shape.h"
#include "tandem/v1/generate.pb.h"

namespace tandem::cli {

// Calls block. Any thread may make them.
class BatchClient {
 public:
  BatchClient(const std::string& address, const ClientSecurity& security);
  ~BatchClient();

  // Runs a request to its end. `tenant`: the metadata tandem-tenant; empty: none.
  using OnMessage = std::function<void(const v1::GenerateResponse& message)>;
  gateway::CallEnd Generate(const v1::GenerateRequest& request, const std::string& tenant,
                            const OnMessage& on_message);

  // Ends all running and later calls with CANCELLED.
  void Cancel();

 private:
  struct Impl;  // keeps gRPC's headers out of this header
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BATCH_BATCH_CLIENT_H_
