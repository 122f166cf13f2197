// Writes the heads of answers.
#ifndef TANDEM_SERVICES_GATEWAY_HTTP_ANSWER_HEAD_H_
#define TANDEM_SERVICES_GATEWAY_HTTP_ANSWER_HEAD_H_

#include <string>
#include <string_view>

#include "services/gateway/http/http_message.h"

namespace tandem::gateway {

// Returns the status line and the headers, with the empty line after them. `request_id` may be
// empty.
std::string AnswerHead(const HttpAnswer& answer, const std::string& request_id, bool keeps_alive);

// The head of an answer of server-sent events. In pieces, each piece goes through AppendChunk.
// HTTP/1.0 has no pieces, and the end of the connection is the end of the answer.
std::string StreamHead(const std::string& request_id, bool in_pieces, bool keeps_alive);

// Appends the bytes as one piece of a body (RFC 9112, section 7.1).
void AppendChunk(std::string_view bytes, std::string* to);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_HTTP_ANSWER_HEAD_H_
