// Decides who answers a request: the table of paths, and what is refused before.
#ifndef TANDEM_SERVICES_GATEWAY_CALLS_ROUTES_H_
#define TANDEM_SERVICES_GATEWAY_CALLS_ROUTES_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/security/server_security.h"
#include "services/gateway/api/requests/completion_request.h"
#include "services/gateway/calls/router_call.h"
#include "services/gateway/calls/router_client.h"
#include "services/gateway/http/http_service.h"

namespace tandem::gateway {

struct RoutesOptions {
  std::string version;
  ServerSecurity security;
  bool is_loopback = false;       // the gateway listens on a loopback address
  bool passes_tokens_on = false;  // clients' tokens go to the router
  int64_t created = 0;            // when this process began, in seconds since 1970
};

// Thread-safe.
class Routes final : public HttpService {
 public:
  // `on_answered` writes a request down. `router` must outlive this object.
  Routes(RoutesOptions options, RouterClient* router,
         std::function<void(const AccessRecord& record)> on_answered);

  std::optional<HttpAnswer> Refuse(const HttpRequest& head) override;
  std::shared_ptr<Exchange> Answer(HttpRequest request, std::shared_ptr<Reply> reply) override;
  HttpAnswer ErrorAnswer(int status, const std::string& message) override;
  void OnAnswered(const AccessRecord& record) override;

  // Requests that come from now on are refused, because this process ends.
  void Drain() { draining_ = true; }

 private:
  bool IsAllowed(const HttpRequest& head) const;
  CallMetadata MetadataOf(const HttpRequest& request) const;
  std::shared_ptr<Exchange> Complete(const HttpRequest& request,
                                     absl::StatusOr<CompletionRequest> parsed,
                                     std::shared_ptr<Reply> reply);
  std::shared_ptr<Exchange> Tokenize(const HttpRequest& request, std::shared_ptr<Reply> reply);
  std::shared_ptr<Exchange> Detokenize(const HttpRequest& request, std::shared_ptr<Reply> reply);

  const RoutesOptions options_;
  RouterClient* const router_;
  const std::function<void(const AccessRecord&)> on_answered_;
  std::atomic<bool> draining_ = false;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_CALLS_ROUTES_H_
