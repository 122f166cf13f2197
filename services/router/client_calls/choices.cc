#include "services/router/client_calls/choices.h"

#include <algorithm>

namespace tandem {

void Choices::Begin(CallId call, const GenerationRequest& first) {
  if (first.num_choices <= 1) return;
  calls_[call] = {.first = first, .num_begun = 1, .running = {{.id = call}}};
}

Choices::Choice Choices::Of(CallId id) const {
  const auto other = others_.find(id);
  return other == others_.end() ? Choice{.call = id, .index = 0} : other->second;
}

void Choices::OnTokens(CallId id, int num_tokens) {
  const auto call = calls_.find(Of(id).call);
  if (call == calls_.end()) return;
  for (Running& choice : call->second.running) {
    if (choice.id == id) choice.num_tokens += num_tokens;
  }
}

std::optional<GenerationRequest> Choices::TakeNext(const Choice& newest, CallId next_id) {
  const auto found = calls_.find(newest.call);
  if (found == calls_.end()) return std::nullopt;
  Call& call = found->second;
  if (newest.index + 1 != call.num_begun || call.num_begun == call.first.num_choices) {
    return std::nullopt;
  }
  others_[next_id] = {.call = newest.call, .index = call.num_begun};
  call.running.push_back({.id = next_id});
  GenerationRequest next = call.first.ForChoice(call.num_begun++);
  if (call.num_begun == call.first.num_choices) call.first.prompt_token_ids = {};
  return next;
}

bool Choices::OnEnded(CallId id) {
  const Choice choice = Of(id);
  others_.erase(id);
  const auto found = calls_.find(choice.call);
  if (found == calls_.end()) return true;
  Call& call = found->second;
  std::erase_if(call.running, [id](const Running& running) { return running.id == id; });
  return call.running.empty() && call.num_begun == call.first.num_choices;
}

std::vector<Choices::Running> Choices::End(CallId call, int num_tokens_of_one, CallId ended) {
  auto node = calls_.extract(call);
  std::vector<Running> running;
  if (node.empty()) {
    running.push_back({.id = call, .num_tokens = num_tokens_of_one});
  } else {
    running = std::move(node.mapped().running);
  }
  for (const Running& choice : running) others_.erase(choice.id);
  std::erase_if(running, [ended](const Running& choice) { return choice.id == ended; });
  std::reverse(running.begin(), running.end());
  return running;
}

}  // namespace tandem
