// What the fields of a request's body become while they are read.
#ifndef TANDEM_SERVICES_GATEWAY_API_REQUEST_DRAFT_H_
#define TANDEM_SERVICES_GATEWAY_API_REQUEST_DRAFT_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "tandem/v1/generate.pb.h"

namespace tandem::gateway {

// A text, or token ids that are used unchanged.
using Prompt = std::variant<std::string, v1::TokenIds>;

// How the answer is written. The router knows nothing of this.
struct AnswerOptions {
  bool stream = false;
  bool has_stream_options = false;
  bool include_usage = false;
  bool echo = false;
  bool logprobs = false;
  std::string user;  // the tenant of an authenticated client; empty: none
};

struct RequestDraft {
  v1::GenerateRequest shared;   // what all prompts of the request share
  std::vector<Prompt> prompts;  // one choice for each
  AnswerOptions answer;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_REQUEST_DRAFT_H_
