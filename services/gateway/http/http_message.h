// Requests and answers of HTTP as values.
#ifndef TANDEM_SERVICES_GATEWAY_HTTP_HTTP_MESSAGE_H_
#define TANDEM_SERVICES_GATEWAY_HTTP_HTTP_MESSAGE_H_

#include <cstdint>
#include <optional>
#include <string>

namespace tandem::gateway {

// The parts of a request that the gateway looks at.
struct HttpRequest {
  std::string method;
  std::string path;  // without the query
  std::string host;
  std::string content_type;
  std::string authorization;
  std::string traceparent;
  std::string body;
};

// A whole answer. An answer in pieces has BeginStream of Reply.
struct HttpAnswer {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::optional<int> retry_seconds = std::nullopt;  // the header Retry-After
  std::string allow = {};                           // the header Allow; empty: none
};

// What the access log has of a request beside what the connection knows.
struct AccessNotes {
  std::string request_id;  // empty: the request has none
  std::string detail;      // why it failed; empty: it did not
  std::optional<int64_t> prompt_tokens;
  std::optional<int64_t> completion_tokens;
  std::string traceparent;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_HTTP_HTTP_MESSAGE_H_
