// What an HTTP server asks: whether it may read a request, who answers it, and who writes it down.
#ifndef TANDEM_SERVICES_GATEWAY_HTTP_HTTP_SERVICE_H_
#define TANDEM_SERVICES_GATEWAY_HTTP_HTTP_SERVICE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "services/gateway/http/exchange.h"
#include "services/gateway/http/http_message.h"

namespace tandem::gateway {

// A line of the access log.
struct AccessRecord {
  std::string method;
  std::string path;
  int status = 0;  // 499: the client left before the end
  double seconds = 0;
  uint64_t bytes = 0;  // written bytes of the answer
  AccessNotes notes;
};

// Called by the strands of all connections, on several threads.
class HttpService {
 public:
  virtual ~HttpService() = default;

  // Called when a request's headers are there and before its body is read. Returns the answer of a
  // request that is refused for its headers alone.
  virtual std::optional<HttpAnswer> Refuse(const HttpRequest& head) = 0;
  // Answers the request, at once or later. Null: it was answered at once.
  virtual std::shared_ptr<Exchange> Answer(HttpRequest request, std::shared_ptr<Reply> reply) = 0;
  // Returns the answer for an error of HTTP itself.
  virtual HttpAnswer ErrorAnswer(int status, const std::string& message) = 0;
  // Called once for each answer, when it has ended.
  virtual void OnAnswered(const AccessRecord& record) = 0;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_HTTP_HTTP_SERVICE_H_
