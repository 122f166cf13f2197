// The gRPC methods with one answer: Tokenize, Detokenize, GetServerInfo and v1.DraftModels.
#ifndef TANDEM_SERVICES_ROUTER_CLIENT_CALLS_UNARY_CALLS_H_
#define TANDEM_SERVICES_ROUTER_CLIENT_CALLS_UNARY_CALLS_H_

#include <cstddef>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"
#include "services/router/client_calls/call_context.h"
#include "services/router/client_calls/draft_model_calls.h"
#include "services/router/client_calls/unary_method.h"
#include "tandem/v1/generate.grpc.pb.h"

namespace tandem {

// Everything runs on the thread that polls the completion queue, except for long texts, which
// are tokenized or decoded in the background. The object must outlive the queue's last event.
class UnaryCalls {
 public:
  // `tokenizer` must outlive the calls. Replies have at most `max_message_bytes`.
  UnaryCalls(const CallContext& context, const Tokenizer* tokenizer, std::string version,
             size_t max_message_bytes);

  // Begins to take calls of all methods.
  void Serve();

 private:
  using TokenizeMethod = UnaryMethod<v1::TokenizeRequest, v1::TokenizeResponse>;
  using DetokenizeMethod = UnaryMethod<v1::DetokenizeRequest, v1::DetokenizeResponse>;
  using InfoMethod = UnaryMethod<v1::GetServerInfoRequest, v1::ServerInfo>;

  void Tokenize(const v1::TokenizeRequest& request, const TokenizeMethod::Respond& respond);
  absl::StatusOr<v1::TokenizeResponse> Encode(const v1::TokenizeRequest& request) const;
  void Detokenize(const v1::DetokenizeRequest& request, const DetokenizeMethod::Respond& respond);
  absl::StatusOr<v1::DetokenizeResponse> Decode(const v1::DetokenizeRequest& request) const;
  void DescribeChats(v1::ServerInfo* info) const;
  v1::ServerInfo Info() const;

  // Calls `respond` with the result of `compute`, which runs in the background if `is_long`.
  template <typename Reply>
  void Respond(bool is_long, std::function<absl::StatusOr<Reply>()> compute,
               std::function<void(const absl::StatusOr<Reply>&)> respond);

  const CallContext context_;
  const Tokenizer* tokenizer_;
  const std::string version_;
  const size_t max_message_bytes_;
  ReplyBudget unread_replies_;
  TokenizeMethod tokenize_;
  DetokenizeMethod detokenize_;
  InfoMethod server_info_;
  DraftModelCalls draft_models_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_CLIENT_CALLS_UNARY_CALLS_H_
