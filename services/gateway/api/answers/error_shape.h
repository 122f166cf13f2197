// Errors as OpenAI's API has them: a status of HTTP, and {"error": {message, type, param, code}}.
#ifndef TANDEM_SERVICES_GATEWAY_API_ANSWERS_ERROR_SHAPE_H_
#define TANDEM_SERVICES_GATEWAY_API_ANSWERS_ERROR_SHAPE_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tandem::gateway {

// One row for each way in which a call of the router can end badly. The codes of absl have the
// numbers of gRPC's.
struct ErrorRow {
  absl::StatusCode code;
  bool says_when_to_retry;  // the row is for statuses with grpc-retry-pushback-ms, or without
  int http;
  std::string_view type;
  std::string_view openai_code;  // empty: null
};
std::span<const ErrorRow> ErrorTable();

// How a call ended, as the router or gRPC tell it.
struct CallEnd {
  absl::Status status;
  std::optional<int> retry_milliseconds = std::nullopt;  // grpc-retry-pushback-ms
  // Whether the router itself wrote the message. gRPC's own texts about a connection have addresses
  // and are for the log only.
  bool is_from_router = false;
};

struct ApiError {
  int http = 500;
  std::string message;
  std::string type;
  std::string param;                                // empty: null
  std::string code;                                 // empty: null
  std::optional<int> retry_seconds = std::nullopt;  // for the header Retry-After
  std::string allow = {};                           // for the header Allow
};

// Returns the error for a call that failed. PRECOND: its status is not OK.
ApiError ErrorOf(const CallEnd& end);
// Returns the error for a status of our own, whose message begins with the name of the field.
ApiError ErrorOf(const absl::Status& status);

// Errors of HTTP, before any call is made.
ApiError NotAuthorized();
// `similar` is a path that there is, or empty.
ApiError NoSuchPath(const std::string& similar);
ApiError MethodNotAllowed(std::string_view allow);
ApiError HttpError(int http, std::string message);

// Returns the body of an answer, or the data of an event in a stream.
std::string ErrorBody(const ApiError& error);

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_ANSWERS_ERROR_SHAPE_H_
