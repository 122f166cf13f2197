// Answers that several calls give.
#ifndef TANDEM_SERVICES_GATEWAY_CALLS_ANSWERS_H_
#define TANDEM_SERVICES_GATEWAY_CALLS_ANSWERS_H_

#include <string>
#include <utility>

#include "services/gateway/api/answers/error_shape.h"
#include "services/gateway/http/exchange.h"
#include "services/gateway/http/http_message.h"

namespace tandem::gateway {

inline HttpAnswer JsonAnswer(std::string body) {
  HttpAnswer answer;
  answer.body = std::move(body);
  return answer;
}

inline HttpAnswer AnswerOf(const ApiError& error) {
  HttpAnswer answer;
  answer.status = error.http;
  answer.body = ErrorBody(error);
  answer.retry_seconds = error.retry_seconds;
  answer.allow = error.allow;
  return answer;
}

// Sends the error, and writes it down for the access log.
inline void SendError(Reply& reply, const ApiError& error) {
  if (reply.notes().detail.empty()) reply.notes().detail = error.message;
  reply.Send(AnswerOf(error));
}

// Writes down what gRPC said, which the client may not learn.
inline void NoteFailure(Reply& reply, const CallEnd& end) {
  reply.notes().detail = std::string(end.status.message());
}

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_CALLS_ANSWERS_H_
