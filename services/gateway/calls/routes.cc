#include "services/gateway/calls/routes.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <chrono>
#include <random>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "common/log/trace_context.h"
#include "common/security/authorization.h"
#include "services/gateway/api/answers/json_text.h"
#include "services/gateway/api/requests/completion_request.h"
#include "services/gateway/api/requests/tenant_name.h"
#include "services/gateway/api/requests/token_request.h"
#include "services/gateway/calls/answers.h"
#include "services/gateway/calls/completion_call.h"
#include "services/gateway/calls/simple_calls.h"

namespace tandem::gateway {
namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";

enum class Page { kHealth, kVersion, kModels, kModel, kCompletions, kChat, kTokenize, kDetokenize };

struct Route {
  std::string_view path;
  Page page;
  bool is_post = false;
};
// vLLM has tokenize and detokenize without /v1.
constexpr Route kRoutes[] = {
    {"/health", Page::kHealth},
    {"/version", Page::kVersion},
    {"/v1/models", Page::kModels},
    {"/v1/completions", Page::kCompletions, true},
    {"/v1/chat/completions", Page::kChat, true},
    {"/v1/tokenize", Page::kTokenize, true},
    {"/v1/detokenize", Page::kDetokenize, true},
    {"/tokenize", Page::kTokenize, true},
    {"/detokenize", Page::kDetokenize, true},
};
constexpr Route kModelRoute = {kModelPrefix, Page::kModel};

// Null: there is no such path.
const Route* FindRoute(const std::string& path) {
  for (const Route& route : kRoutes) {
    if (route.path == path) return &route;
  }
  return path.starts_with(kModelPrefix) && path.size() > kModelPrefix.size() ? &kModelRoute
                                                                             : nullptr;
}

// Returns a path that there is for one whose version was forgotten, or that has a slash too many.
std::string SimilarPath(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  for (const std::string& similar : {path, "/v1" + path}) {
    if (FindRoute(similar) != nullptr) return similar;
  }
  return "";
}

std::string_view MethodsOf(const Route& route) { return route.is_post ? "POST" : "GET, HEAD"; }

bool Takes(const Route& route, const std::string& method) {
  return route.is_post ? method == "POST" : method == "GET" || method == "HEAD";
}

// Whether a page of another site cannot have sent the request by a name that leads to this machine.
bool NamesThisMachine(std::string host) {
  if (host.empty()) return true;
  if (const size_t colon = host.rfind(':');
      colon != std::string::npos && host.find(']', colon) == std::string::npos) {
    host.resize(colon);
  }
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  boost::system::error_code error;
  boost::asio::ip::make_address(host, error);
  return !error || absl::EqualsIgnoreCase(host, "localhost");
}

bool IsJson(const std::string& content_type) {
  const std::string type = content_type.substr(0, content_type.find(';'));
  const size_t end = type.find_last_not_of(" \t");
  return end != std::string::npos &&
         absl::EqualsIgnoreCase(type.substr(0, end + 1), "application/json");
}

// Tokens have these characters (common/security/token_file.h). Others cannot be metadata of gRPC.
bool IsToken(const std::string& token) {
  return !token.empty() && token.size() <= kMaxTokenBytes &&
         std::all_of(token.begin(), token.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  std::string_view("-._~+/=").find(c) != std::string_view::npos;
         });
}

// Returns a traceparent that gRPC can carry. Empty: it is not valid.
std::string Traceparent(const std::string& given) {
  constexpr size_t kMaxBytes = 256;
  const bool is_printable =
      std::all_of(given.begin(), given.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  const bool is_good = is_printable && given.size() <= kMaxBytes && ParseTraceparent(given);
  return is_good ? given : "";
}

std::string NewId(bool is_chat) {
  thread_local std::mt19937_64 random(std::random_device{}());
  return absl::StrFormat("%s-%016x%08x", is_chat ? "chatcmpl" : "cmpl", random(), random() >> 32);
}

int64_t SecondsNow() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Routes::Routes(RoutesOptions options, RouterClient* router,
               std::function<void(const AccessRecord&)> on_answered)
    : options_(std::move(options)), router_(router), on_answered_(std::move(on_answered)) {}

bool Routes::IsAllowed(const HttpRequest& head) const {
  if (options_.security.tokens == nullptr || head.path == "/health") return true;
  const std::string token = BearerToken(head.authorization);
  return !token.empty() && options_.security.tokens->RoleOf(token) != Role::kNone;
}

std::optional<HttpAnswer> Routes::Refuse(const HttpRequest& head) {
  if (draining_) return AnswerOf(HttpError(503, "the server drains"));
  if (options_.is_loopback && options_.security.tokens == nullptr && !NamesThisMachine(head.host)) {
    return AnswerOf(HttpError(421, "ask for localhost, or an IP address, or use a token file"));
  }
  if (!IsAllowed(head)) return AnswerOf(NotAuthorized());
  const Route* const route = FindRoute(head.path);
  if (route == nullptr) return AnswerOf(NoSuchPath(SimilarPath(head.path)));
  if (!Takes(*route, head.method)) return AnswerOf(MethodNotAllowed(MethodsOf(*route)));
  // A page of another site can send other types without asking first.
  if (route->is_post && !IsJson(head.content_type)) {
    return AnswerOf(HttpError(415, "the body must have Content-Type: application/json"));
  }
  return std::nullopt;
}

CallMetadata Routes::MetadataOf(const HttpRequest& request) const {
  CallMetadata metadata;
  metadata.traceparent = Traceparent(request.traceparent);
  if (options_.passes_tokens_on) {
    std::string token = BearerToken(request.authorization);
    if (IsToken(token)) metadata.token = std::move(token);
  }
  return metadata;
}

std::shared_ptr<Exchange> Routes::Answer(HttpRequest request, std::shared_ptr<Reply> reply) {
  const CallMetadata metadata = MetadataOf(request);
  switch (FindRoute(request.path)->page) {
    case Page::kHealth:
      return AnswerHealth(*router_, metadata, std::move(reply));
    case Page::kVersion:
      reply->Send(JsonAnswer("{\"version\":" + JsonText(options_.version) + "}"));
      return nullptr;
    case Page::kModels:
      return AnswerModels(*router_, metadata, options_.created, std::move(reply));
    case Page::kModel:
      return AnswerModel(*router_, metadata, options_.created,
                         request.path.substr(kModelPrefix.size()), std::move(reply));
    case Page::kCompletions:
      return Complete(request, CompletionRequest::Parse(request.body), std::move(reply));
    case Page::kChat:
      return Complete(request, CompletionRequest::ParseChat(request.body), std::move(reply));
    case Page::kTokenize:
      return Tokenize(request, std::move(reply));
    case Page::kDetokenize:
      return Detokenize(request, std::move(reply));
  }
  return nullptr;
}

std::shared_ptr<Exchange> Routes::Complete(const HttpRequest& request,
                                           absl::StatusOr<CompletionRequest> parsed,
                                           std::shared_ptr<Reply> reply) {
  if (!parsed.ok()) {
    SendError(*reply, ErrorOf(parsed.status()));
    return nullptr;
  }
  CompletionCall::Context context;
  context.router = router_;
  context.metadata = MetadataOf(request);
  // A client that nobody knows could otherwise name another one's tenant.
  if (options_.security.tokens != nullptr || options_.security.mutual_tls()) {
    auto tenant = TenantName(parsed->answer().user);
    if (!tenant.ok()) {
      SendError(*reply, ErrorOf(tenant.status()));
      return nullptr;
    }
    context.metadata.tenant = *std::move(tenant);
  }
  context.id = NewId(parsed->answer().is_chat);
  context.created = SecondsNow();
  const auto call =
      std::make_shared<CompletionCall>(std::move(context), *std::move(parsed), std::move(reply));
  call->Start();
  return call;
}

std::shared_ptr<Exchange> Routes::Tokenize(const HttpRequest& request,
                                           std::shared_ptr<Reply> reply) {
  auto call = ParseTokenize(request.body);
  if (call.ok())
    return AnswerTokenize(*router_, MetadataOf(request), *std::move(call), std::move(reply));
  SendError(*reply, ErrorOf(call.status()));
  return nullptr;
}

std::shared_ptr<Exchange> Routes::Detokenize(const HttpRequest& request,
                                             std::shared_ptr<Reply> reply) {
  auto call = ParseDetokenize(request.body);
  if (call.ok()) {
    return AnswerDetokenize(*router_, MetadataOf(request), *std::move(call), std::move(reply));
  }
  SendError(*reply, ErrorOf(call.status()));
  return nullptr;
}

HttpAnswer Routes::ErrorAnswer(int status, const std::string& message) {
  return AnswerOf(HttpError(status, message));
}

void Routes::OnAnswered(const AccessRecord& record) { on_answered_(record); }

}  // namespace tandem::gateway
