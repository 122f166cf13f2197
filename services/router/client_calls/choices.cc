#include "services/router/client_calls/choices.h"

namespace tandem {

void Choices::Begin(CallId call, const GenerationRequest& first) {
  if (first.num_choices <= 1) return;
  Call& begun = calls_[call];
  begun.running = {call};
  begun.first = first;
}

Choices::Choice Choices::Of(CallId id) const {
  const auto other = others_.find(id);
  return other == others_.end() ? Choice{.call = id, .index = 0} : other->second;
}

void Choices::OnTokens(const Choice& choice, int num_tokens) {
  if (const auto call = calls_.find(choice.call); call != calls_.end()) {
    call->second.num_tokens += num_tokens;
  }
}

std::vector<Choices::Request> Choices::TakeOthers(const Choice& choice,
                                                  const std::function<CallId()>& new_id) {
  std::vector<Request> begun;
  const auto found = calls_.find(choice.call);
  if (found == calls_.end() || choice.index != 0) return begun;
  Call& call = found->second;
  const std::optional<GenerationRequest> first = std::exchange(call.first, std::nullopt);
  for (uint32_t i = 1; first.has_value() && i < first->num_choices; ++i) {
    const CallId id = new_id();
    others_[id] = {.call = choice.call, .index = i};
    call.running.push_back(id);
    begun.emplace_back(id, first->ForChoice(i));
  }
  return begun;
}

bool Choices::OnEnded(CallId id) {
  const Choice choice = Of(id);
  others_.erase(id);
  const auto call = calls_.find(choice.call);
  if (call == calls_.end()) return true;
  std::erase(call->second.running, id);
  return call->second.running.empty();
}

int Choices::NumTokens(CallId call, int of_one) const {
  const auto found = calls_.find(call);
  return found == calls_.end() ? of_one : found->second.num_tokens;
}

std::vector<CallId> Choices::End(CallId call, CallId ended) {
  const auto node = calls_.extract(call);
  if (node.empty()) return call == ended ? std::vector<CallId>() : std::vector<CallId>{call};
  std::vector<CallId> running = std::move(node.mapped().running);
  for (const CallId id : running) others_.erase(id);
  std::erase(running, ended);
  return running;
}

}  // namespace tandem
