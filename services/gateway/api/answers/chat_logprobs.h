// The log-probabilities of a choice, in the shape of chats.
#ifndef TANDEM_SERVICES_GATEWAY_API_ANSWERS_CHAT_LOGPROBS_H_
#define TANDEM_SERVICES_GATEWAY_API_ANSWERS_CHAT_LOGPROBS_H_

#include <string>

#include "tandem/v1/generate.pb.h"

namespace tandem::gateway {

// Collects the entries of tokens, in their order.
class ChatLogprobs {
 public:
  void Add(const v1::TokenLogprobs& token);

  bool empty() const { return content_.empty(); }
  // Returns the object, and forgets its entries.
  std::string Take();

 private:
  std::string content_;  // entries with commas between them
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_ANSWERS_CHAT_LOGPROBS_H_
