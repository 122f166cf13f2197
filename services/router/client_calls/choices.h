// The outputs of calls that want several (SamplingParams.n). Each output is a request of its own
// for the fleet, and all of them share one stream.
#ifndef TANDEM_SERVICES_ROUTER_CLIENT_CALLS_CHOICES_H_
#define TANDEM_SERVICES_ROUTER_CLIENT_CALLS_CHOICES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "services/router/engine/engine_command.h"
#include "services/router/request/generation_request.h"

namespace tandem {

// The first choice of a call has the call's own id. The others get ids of their own, and begin when
// the first one has output: the rows of the prompt are in the prefix cache then, and are not
// computed once for each choice. Calls with one choice take no memory here. Pure.
class Choices {
 public:
  struct Choice {
    CallId call = 0;
    uint32_t index = 0;
  };
  using Request = std::pair<CallId, GenerationRequest>;

  // A call begins with its first choice.
  void Begin(CallId call, const GenerationRequest& first);
  // Returns the call and the place of a choice. An id that is not known is a call of one choice.
  Choice Of(CallId id) const;
  // A choice has sent so many tokens.
  void OnTokens(const Choice& choice, int num_tokens);
  // Returns the other choices if this one is the first and they have not begun. They begin now.
  std::vector<Request> TakeOthers(const Choice& choice, const std::function<CallId()>& new_id);
  // A choice has ended well. Returns true if no other one of its call goes on.
  bool OnEnded(CallId id);
  // Returns the tokens of all choices of a call. For a call of one choice: `of_one`.
  int NumTokens(CallId call, int of_one) const;
  // The call is over. Returns the ids of its choices that have begun and not ended, except for
  // `ended`.
  std::vector<CallId> End(CallId call, CallId ended = 0);

 private:
  struct Call {
    std::optional<GenerationRequest> first;  // until the others begin
    std::vector<CallId> running;
    int num_tokens = 0;
  };
  std::unordered_map<CallId, Call> calls_;
  std::unordered_map<CallId, Choice> others_;  // choices but the first, by id
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_CLIENT_CALLS_CHOICES_H_
