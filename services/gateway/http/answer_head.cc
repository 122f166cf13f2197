#include "services/gateway/http/answer_head.h"

#include <boost/beast/http/status.hpp>
#include <ctime>

#include "absl/strings/str_cat.h"

namespace tandem::gateway {
namespace {

// RFC 9110, section 5.6.7.
std::string DateNow() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[40];
  const size_t size = std::strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &utc);
  return {text, size};
}

std::string Begin(int status, const std::string& request_id, bool keeps_alive) {
  const auto reason = boost::beast::http::obsolete_reason(
      static_cast<boost::beast::http::status>(static_cast<unsigned>(status)));
  std::string head = "HTTP/1.1 " + std::to_string(status) + " ";
  head.append(reason.data(), reason.size());
  head += "\r\nDate: " + DateNow() + "\r\nX-Content-Type-Options: nosniff\r\n";
  if (!request_id.empty()) head += "x-request-id: " + request_id + "\r\n";
  // HTTP/1.0 keeps a connection only if it is told so.
  return head + (keeps_alive ? "Connection: keep-alive\r\n" : "Connection: close\r\n");
}

}  // namespace

std::string AnswerHead(const HttpAnswer& answer, const std::string& request_id, bool keeps_alive) {
  std::string head = Begin(answer.status, request_id, keeps_alive);
  if (!answer.body.empty()) head += "Content-Type: " + answer.content_type + "\r\n";
  head += "Content-Length: " + std::to_string(answer.body.size()) + "\r\n";
  if (answer.retry_seconds.has_value()) {
    head += "Retry-After: " + std::to_string(*answer.retry_seconds) + "\r\n";
  }
  if (!answer.allow.empty()) head += "Allow: " + answer.allow + "\r\n";
  if (answer.status == 401) head += "WWW-Authenticate: Bearer realm=\"tandem\"\r\n";
  return head + "\r\n";
}

std::string StreamHead(const std::string& request_id, bool in_pieces, bool keeps_alive) {
  std::string head = Begin(200, request_id, keeps_alive && in_pieces);
  head += "Content-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n";
  // Some proxies collect what they pass on unless they are told not to.
  head += "X-Accel-Buffering: no\r\n";
  if (in_pieces) head += "Transfer-Encoding: chunked\r\n";
  return head + "\r\n";
}

void AppendChunk(std::string_view bytes, std::string* to) {
  if (bytes.empty()) return;  // an empty piece would be the last one
  absl::StrAppend(to, absl::Hex(bytes.size()), "\r\n");
  *to += bytes;
  *to += "\r\n";
}

}  // namespace tandem::gateway
