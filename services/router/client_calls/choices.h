// The outputs of calls that want several (SamplingParams.n). Each output is a request of its own
// for the fleet, and all of them share one stream.
#ifndef TANDEM_SERVICES_ROUTER_CLIENT_CALLS_CHOICES_H_
#define TANDEM_SERVICES_ROUTER_CLIENT_CALLS_CHOICES_H_

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "services/router/engine/engine_command.h"
#include "services/router/request/generation_request.h"

namespace tandem {

// The first choice of a call has the call's own id, and the others get ids of their own. Each
// choice begins when the one before it has its first token. So the rows of the prompt are in the
// prefix cache, and at most one choice of a call waits in the queue. Calls that want one output
// take no memory here. The class is pure.
class Choices {
 public:
  struct Choice {
    CallId call = 0;
    uint32_t index = 0;
  };
  // A choice that has begun and not ended.
  struct Running {
    CallId id = 0;
    int num_tokens = 0;  // that it has emitted
  };

  // A call begins with its first choice.
  void Begin(CallId call, const GenerationRequest& first);
  // Returns the call and the place of a choice. An id that is not known is a call of one choice.
  Choice Of(CallId id) const;
  // A choice has emitted so many tokens.
  void OnTokens(CallId id, int num_tokens);
  // Returns the next choice of the call if `newest` is the last one that has begun. It begins now,
  // as `next_id`.
  std::optional<GenerationRequest> TakeNext(const Choice& newest, CallId next_id);
  // A choice has ended well. Returns true if it was the last one of its call.
  bool OnEnded(CallId id);
  // The call is over. Returns its choices that have begun and not ended, the newest first, except
  // for `ended`. The call of one choice has emitted `num_tokens_of_one`.
  std::vector<Running> End(CallId call, int num_tokens_of_one, CallId ended = 0);

 private:
  struct Call {
    GenerationRequest first;  // without its prompt once all choices have begun
    uint32_t num_begun = 1;
    std::vector<Running> running;
  };
  std::unordered_map<CallId, Call> calls_;
  std::unordered_map<CallId, Choice> others_;  // choices but the first, by id
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_CLIENT_CALLS_CHOICES_H_
