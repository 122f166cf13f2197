#include "services/gateway/api/answers/error_shape.h"

#include <algorithm>

#include "services/gateway/api/answers/json_text.h"

namespace tandem::gateway {
namespace {

using Code = absl::StatusCode;

constexpr std::string_view kInvalid = "invalid_request_error";
constexpr std::string_view kServer = "server_error";

constexpr ErrorRow kRows[] = {
    {Code::kInvalidArgument, false, 400, kInvalid, ""},
    {Code::kOutOfRange, false, 400, kInvalid, ""},
    // A quarantined prompt: another try would not help.
    {Code::kFailedPrecondition, false, 400, kInvalid, "request_quarantined"},
    {Code::kUnauthenticated, false, 401, kInvalid, "invalid_api_key"},
    {Code::kPermissionDenied, false, 403, kInvalid, "permission_denied"},
    {Code::kNotFound, false, 404, kInvalid, "model_not_found"},
    {Code::kAlreadyExists, false, 409, kInvalid, "request_id_in_use"},
    // The queue is full.
    {Code::kResourceExhausted, true, 429, "rate_limit_error", "rate_limit_exceeded"},
    // A message, a text or a prompt that does not fit: another try would not help.
    {Code::kResourceExhausted, false, 413, kInvalid, "request_too_large"},
    // Not by this client: a call of a client that left has nobody to be answered.
    {Code::kCancelled, false, 503, kServer, "canceled"},
    {Code::kInternal, false, 500, kServer, ""},
    {Code::kUnknown, false, 500, kServer, ""},
    {Code::kDataLoss, false, 500, kServer, ""},
    {Code::kUnimplemented, false, 501, kServer, "not_implemented"},
    {Code::kUnavailable, false, 503, kServer, "service_unavailable"},
    {Code::kUnavailable, true, 503, kServer, "service_unavailable"},
    {Code::kAborted, false, 503, kServer, "service_unavailable"},
    {Code::kDeadlineExceeded, false, 504, kServer, "deadline_exceeded"},
};

// Seconds after which a client may try again, if the router does not say.
constexpr int kUnavailableRetrySeconds = 1;

const ErrorRow& RowOf(Code code, bool says_when_to_retry) {
  const ErrorRow* found = nullptr;
  for (const ErrorRow& row : kRows) {
    if (row.code != code) continue;
    if (row.says_when_to_retry == says_when_to_retry) return row;
    found = &row;
  }
  return found != nullptr ? *found : RowOf(Code::kUnknown, false);
}

// Removes the names of the proto's messages, which a client of HTTP does not know.
std::string WithOurNames(std::string message) {
  constexpr std::string_view kPrefix = "sampling_params.";
  for (size_t at = message.find(kPrefix); at != std::string::npos; at = message.find(kPrefix, at)) {
    message.erase(at, kPrefix.size());
  }
  struct Name {
    std::string_view router;
    std::string_view here;
  };
  constexpr Name kNames[] = {{"prompt_token_ids", "prompt"},
                             {"chat.messages", "messages"},
                             {"chat.tools_json", "tools"},
                             {"chat.template_kwargs_json", "chat_template_kwargs"},
                             {"chat: ", "messages: "}};
  for (const Name& name : kNames) {
    if (!message.starts_with(name.router)) continue;
    return message.replace(0, name.router.size(), name.here);
  }
  return message;
}

// Returns the field at the beginning of "field: got …". Empty: there is none.
std::string ParamOf(const std::string& message) {
  // What a template says of the messages has no value.
  if (message.starts_with("messages: ")) return "messages";
  const size_t end = message.find(": got ");
  if (end == std::string::npos) return "";
  const std::string name = message.substr(0, std::min(message.find('['), end));
  const bool is_name = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  });
  return is_name ? name : "";
}

// Returns what a client learns of a failure that gRPC itself tells.
std::string OwnWords(Code code) {
  switch (code) {
    case Code::kUnavailable:
      return "the router cannot be reached at present";
    case Code::kUnauthenticated:
      return "the router wants a token: Authorization: Bearer TOKEN";
    case Code::kDeadlineExceeded:
      return "the router did not answer in time";
    case Code::kCancelled:
      return "the request was canceled";
    case Code::kResourceExhausted:
      return "the request is too large for the router, or the router has no room for it";
    default:
      return "the request failed; the gateway's log says why";
  }
}

// The statuses whose messages the router writes for clients in every call, and gRPC does not write
// about connections.
bool IsAboutTheRequest(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
    case Code::kFailedPrecondition:
    case Code::kNotFound:
    case Code::kAlreadyExists:
    case Code::kUnauthenticated:
    case Code::kPermissionDenied:
      return true;
    default:
      return false;
  }
}

ApiError FromRow(const ErrorRow& row, std::string message) {
  return {.http = row.http,
          .message = std::move(message),
          .type = std::string(row.type),
          .param = {},
          .code = std::string(row.openai_code)};
}

}  // namespace

std::span<const ErrorRow> ErrorTable() { return kRows; }

ApiError ErrorOf(const CallEnd& end) {
  const Code code = end.status.code();
  const bool is_for_clients = end.is_from_router || IsAboutTheRequest(code);
  std::string message =
      is_for_clients ? WithOurNames(std::string(end.status.message())) : OwnWords(code);
  if (message.empty()) message = OwnWords(code);
  ApiError error = FromRow(RowOf(code, end.retry_milliseconds.has_value()), std::move(message));
  if (error.type == kInvalid && is_for_clients) error.param = ParamOf(error.message);
  if (code == Code::kNotFound) error.param = "model";
  // Clients look for this code to shorten what they send.
  if (error.message.find(" tokens (the context has ") != std::string::npos) {
    error.code = "context_length_exceeded";
    // Some clients see the message alone.
    error.message += ": context_length_exceeded";
  }
  if (end.retry_milliseconds.has_value()) {
    error.retry_seconds = std::max(1, (*end.retry_milliseconds + 999) / 1000);
  } else if (error.http == 503) {
    error.retry_seconds = kUnavailableRetrySeconds;
  }
  return error;
}

ApiError ErrorOf(const absl::Status& status) {
  return ErrorOf(CallEnd{.status = status, .is_from_router = true});
}

ApiError NotAuthorized() {
  return FromRow(RowOf(Code::kUnauthenticated, false),
                 "a token is needed: Authorization: Bearer TOKEN, with a token of this server");
}

ApiError NoSuchPath(const std::string& similar) {
  std::string message = "there is no such path";
  if (!similar.empty()) message += "; did you mean " + similar;
  ApiError error = HttpError(404, message);
  error.code = "unknown_url";
  return error;
}

ApiError MethodNotAllowed(std::string_view allow) {
  ApiError error = HttpError(405, "the path takes these methods only: " + std::string(allow));
  error.code = "method_not_allowed";
  error.allow = allow;
  return error;
}

ApiError HttpError(int http, std::string message) {
  ApiError error;
  error.http = http;
  error.message = std::move(message);
  error.type = http < 500 ? kInvalid : kServer;
  if (http == 503) {
    error.code = "service_unavailable";
    error.retry_seconds = kUnavailableRetrySeconds;
  }
  if (http == 413) error.code = "request_too_large";
  return error;
}

std::string ErrorBody(const ApiError& error) {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? std::string("null") : JsonText(text);
  };
  return "{\"error\":{\"message\":" + JsonText(error.message) +
         ",\"type\":" + JsonText(error.type) + ",\"param\":" + or_null(error.param) +
         ",\"code\":" + or_null(error.code) + "}}";
}

}  // namespace tandem::gateway
