#include "services/gateway/calls/simple_calls.h"

#include <chrono>

#include "common/peer_text.h"
#include "common/status.h"
#include "services/gateway/api/answers/model_list.h"
#include "services/gateway/calls/answers.h"

namespace tandem::gateway {
namespace {

using Waiting = std::shared_ptr<SimpleExchange>;

// Whoever asks for the health wants to know it soon.
constexpr std::chrono::seconds kHealthDeadline{2};

void SendFailure(const CallEnd& end, Reply& reply) {
  NoteFailure(reply, end);
  SendError(reply, ErrorOf(end));
}

// Sends the body that `write` makes, or the error of the call.
template <typename Response, typename Write>
RouterClient::OnEnd<Response> SendsBody(const Waiting& exchange, Write write) {
  return [exchange, write](const CallEnd& end, const Response& response) {
    const std::shared_ptr<Reply> reply = exchange->Take();
    if (reply == nullptr) return;
    if (end.status.ok()) return reply->Send(write(response));
    SendFailure(end, *reply);
  };
}

HttpAnswer NoSuchModel(const std::string& given, const std::string& served) {
  return AnswerOf(
      ErrorOf(NotFound("model: got " + QuotedShort(given) + ", served: " + QuotedShort(served))));
}

// Calls `then` with the server's info, if the model is the served one. Otherwise answers.
void WithModel(RouterClient& router, const CallMetadata& metadata, const std::string& model,
               const Waiting& exchange, const boost::asio::any_io_executor& strand,
               std::function<void(const v1::ServerInfo& info)> then) {
  exchange->Wait(router.Info(
      strand, metadata,
      [model, exchange, then = std::move(then)](const CallEnd& end, const v1::ServerInfo& info) {
        if (exchange->is_over()) return;
        if (end.status.ok() && (model.empty() || model == info.model())) return then(info);
        const std::shared_ptr<Reply> reply = exchange->Take();
        if (end.status.ok()) return reply->Send(NoSuchModel(model, info.model()));
        SendFailure(end, *reply);
      }));
}

}  // namespace

std::shared_ptr<Exchange> AnswerHealth(RouterClient& router, const CallMetadata& metadata,
                                       std::shared_ptr<Reply> reply) {
  const auto strand = reply->executor();
  const auto exchange = std::make_shared<SimpleExchange>(std::move(reply));
  const auto answer = [exchange](const CallEnd& end, const v1::ServerInfo&) {
    const std::shared_ptr<Reply> waiting = exchange->Take();
    if (waiting == nullptr) return;
    // A router that wants a token has answered, too.
    if (end.status.ok() || absl::IsUnauthenticated(end.status)) {
      return waiting->Send(HttpAnswer());
    }
    NoteFailure(*waiting, end);
    // Whatever the reason is: requests would not be served.
    SendError(*waiting, HttpError(503, ErrorOf(end).message));
  };
  exchange->Wait(router.AskInfo(strand, metadata, answer, kHealthDeadline));
  return exchange;
}

std::shared_ptr<Exchange> AnswerModels(RouterClient& router, const CallMetadata& metadata,
                                       int64_t created, std::shared_ptr<Reply> reply) {
  const auto strand = reply->executor();
  const auto exchange = std::make_shared<SimpleExchange>(std::move(reply));
  exchange->Wait(router.AskInfo(
      strand, metadata, SendsBody<v1::ServerInfo>(exchange, [created](const v1::ServerInfo& info) {
        return JsonAnswer(ModelListBody(info, created));
      })));
  return exchange;
}

std::shared_ptr<Exchange> AnswerModel(RouterClient& router, const CallMetadata& metadata,
                                      int64_t created, std::string name,
                                      std::shared_ptr<Reply> reply) {
  const auto strand = reply->executor();
  const auto exchange = std::make_shared<SimpleExchange>(std::move(reply));
  exchange->Wait(
      router.AskInfo(strand, metadata,
                     SendsBody<v1::ServerInfo>(
                         exchange, [created, name = std::move(name)](const v1::ServerInfo& info) {
                           if (name != info.model()) return NoSuchModel(name, info.model());
                           return JsonAnswer(ModelBody(info, created));
                         })));
  return exchange;
}

std::shared_ptr<Exchange> AnswerTokenize(RouterClient& router, const CallMetadata& metadata,
                                         TokenCall<v1::TokenizeRequest> call,
                                         std::shared_ptr<Reply> reply) {
  const auto strand = reply->executor();
  const auto exchange = std::make_shared<SimpleExchange>(std::move(reply));
  WithModel(
      router, metadata, call.model, exchange, strand,
      [&router, metadata, exchange, strand,
       request = std::move(call.request)](const v1::ServerInfo& info) {
        const int32_t most = info.max_context_tokens();
        exchange->Wait(router.Tokenize(
            strand, request, metadata,
            SendsBody<v1::TokenizeResponse>(exchange, [most](const v1::TokenizeResponse& tokens) {
              return JsonAnswer(TokenizeBody(tokens, most));
            })));
      });
  return exchange;
}

std::shared_ptr<Exchange> AnswerDetokenize(RouterClient& router, const CallMetadata& metadata,
                                           TokenCall<v1::DetokenizeRequest> call,
                                           std::shared_ptr<Reply> reply) {
  const auto strand = reply->executor();
  const auto exchange = std::make_shared<SimpleExchange>(std::move(reply));
  WithModel(
      router, metadata, call.model, exchange, strand,
      [&router, metadata, exchange, strand,
       request = std::move(call.request)](const v1::ServerInfo&) {
        exchange->Wait(router.Detokenize(
            strand, request, metadata,
            SendsBody<v1::DetokenizeResponse>(exchange, [](const v1::DetokenizeResponse& text) {
              return JsonAnswer(DetokenizeBody(text));
            })));
      });
  return exchange;
}

}  // namespace tandem::gateway
