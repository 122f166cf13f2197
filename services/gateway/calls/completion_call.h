// One POST /v1/completions or POST /v1/chat/completions: a call of Generate for each prompt, and
// the answer.
#ifndef TANDEM_SERVICES_GATEWAY_CALLS_COMPLETION_CALL_H_
#define TANDEM_SERVICES_GATEWAY_CALLS_COMPLETION_CALL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/gateway/api/answers/completion_response.h"
#include "services/gateway/api/requests/completion_request.h"
#include "services/gateway/calls/router_call.h"
#include "services/gateway/calls/router_client.h"
#include "services/gateway/http/exchange.h"

namespace tandem::gateway {

// The largest part of an answer that waits for a client that does not read. While so much waits, no
// message is read from the router.
inline constexpr size_t kMaxWaitingBytes = 32 << 10;
// The number of prompts of one request that run at the same time. The others wait for them.
inline constexpr size_t kMaxRunningPrompts = 16;

// Everything happens on the connection's strand. The first message of the router, or its refusal,
// decides the status of the answer: a stream begins only then.
class CompletionCall final : public Exchange,
                             public StreamListener,
                             public std::enable_shared_from_this<CompletionCall> {
 public:
  struct Context {
    RouterClient* router;
    CallMetadata metadata;
    std::string id;       // "cmpl-…" or "chatcmpl-…"
    int64_t created = 0;  // seconds since 1970
  };
  CompletionCall(Context context, CompletionRequest request, std::shared_ptr<Reply> reply);

  // Called once.
  void Start();

  void OnWritten() override;
  void OnGone() override;
  void OnMessage(size_t prompt, const v1::GenerateResponse& message) override;
  void OnEnd(size_t prompt, const CallEnd& end) override;

 private:
  // Prepares the answer, which names the model. `tool_call_format`: how the model writes calls.
  void OnModel(const std::string& model, const std::string& tool_call_format);
  // Starts calls up to the limit.
  void StartMore();
  // Starts the call of a prompt, after its text is known if the answer repeats it.
  void StartPrompt(size_t prompt);
  void Generate(size_t prompt);
  // These fail the call and return false if the answer becomes too large.
  bool Keep(size_t bytes);
  bool SetEcho(size_t prompt, const std::string& text);
  void Fail(const CallEnd& end);
  void Finish();
  // Ends all calls, and lets go of the connection.
  void LetGo();
  RouterClient& router() { return *context_.router; }

  Context context_;
  CompletionRequest request_;
  std::shared_ptr<Reply> reply_;  // null: the exchange is over
  std::optional<CompletionResponse> response_;
  std::vector<std::shared_ptr<GenerateStream>> streams_;  // by prompt; null: not running
  std::vector<size_t> paused_;                    // prompts whose next message waits for the client
  std::vector<RouterClient::Pending> questions_;  // about the model and prompts
  size_t next_prompt_ = 0;
  size_t num_running_ = 0;
  bool has_begun_ = false;  // the stream of events
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_CALLS_COMPLETION_CALL_H_
