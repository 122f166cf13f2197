// Requests that one unary call of the router answers: models, health, tokens.
#ifndef TANDEM_SERVICES_GATEWAY_CALLS_SIMPLE_CALLS_H_
#define TANDEM_SERVICES_GATEWAY_CALLS_SIMPLE_CALLS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "services/gateway/api/requests/token_request.h"
#include "services/gateway/calls/router_call.h"
#include "services/gateway/calls/router_client.h"
#include "services/gateway/http/exchange.h"

namespace tandem::gateway {

// The connection's end of unary calls, one after the other.
class SimpleExchange final : public Exchange {
 public:
  explicit SimpleExchange(std::shared_ptr<Reply> reply) : reply_(std::move(reply)) {}

  void OnGone() override {
    reply_.reset();
    if (call_ != nullptr) call_->Cancel();
  }
  // The call that the client waits for. Null: it has ended at once.
  void Wait(RouterClient::Pending call) {
    if (call != nullptr) call_ = std::move(call);
  }
  bool is_over() const { return reply_ == nullptr; }
  // Null: nobody waits any more.
  std::shared_ptr<Reply> Take() { return std::exchange(reply_, nullptr); }

 private:
  std::shared_ptr<Reply> reply_;
  RouterClient::Pending call_;
};

// Each function answers `reply`, at once or later, and returns the exchange.
std::shared_ptr<Exchange> AnswerHealth(RouterClient& router, const CallMetadata& metadata,
                                       std::shared_ptr<Reply> reply);
std::shared_ptr<Exchange> AnswerModels(RouterClient& router, const CallMetadata& metadata,
                                       int64_t created, std::shared_ptr<Reply> reply);
// `name` is not decoded: names of models have no characters that a path cannot have as they are.
std::shared_ptr<Exchange> AnswerModel(RouterClient& router, const CallMetadata& metadata,
                                      int64_t created, std::string name,
                                      std::shared_ptr<Reply> reply);
std::shared_ptr<Exchange> AnswerTokenize(RouterClient& router, const CallMetadata& metadata,
                                         TokenCall<v1::TokenizeRequest> call,
                                         std::shared_ptr<Reply> reply);
std::shared_ptr<Exchange> AnswerDetokenize(RouterClient& router, const CallMetadata& metadata,
                                           TokenCall<v1::DetokenizeRequest> call,
                                           std::shared_ptr<Reply> reply);

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_CALLS_SIMPLE_CALLS_H_
