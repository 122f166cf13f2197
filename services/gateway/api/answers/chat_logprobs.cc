#include "services/gateway/api/answers/chat_logprobs.h"

#include <utility>

#include "services/gateway/api/answers/choice_logprobs.h"
#include "services/gateway/api/answers/json_text.h"

namespace tandem::gateway {
namespace {

// `"token":…,"logprob":…,"bytes":…` of a TokenLogprobs or a TopLogprob.
template <typename Entry>
std::string Members(const Entry& entry) {
  std::string bytes;
  for (const char c : entry.bytes()) {
    if (!bytes.empty()) bytes += ',';
    bytes += std::to_string(static_cast<unsigned char>(c));
  }
  return "\"token\":" + JsonText(TokenName(entry.text(), entry.bytes())) +
         ",\"logprob\":" + LogprobText(entry.logprob()) + ",\"bytes\":[" + bytes + "]";
}

}  // namespace

void ChatLogprobs::Add(const v1::TokenLogprobs& token) {
  if (!content_.empty()) content_ += ',';
  content_ += "{" + Members(token) + ",\"top_logprobs\":[";
  for (int i = 0; i < token.top_size(); ++i) {
    content_ += (i == 0 ? "{" : ",{") + Members(token.top(i)) + "}";
  }
  content_ += "]}";
}

std::string ChatLogprobs::Take() {
  return "{\"content\":[" + std::exchange(content_, {}) + "],\"refusal\":null}";
}

}  // namespace tandem::gateway
