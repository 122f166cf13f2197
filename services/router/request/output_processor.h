// From committed tokens to what the client reads: text, stops, limits.
#ifndef TANDEM_SERVICES_ROUTER_REQUEST_OUTPUT_PROCESSOR_H_
#define TANDEM_SERVICES_ROUTER_REQUEST_OUTPUT_PROCESSOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/tokenizer/tokenizer.h"
#include "services/router/request/generation_request.h"
#include "services/router/request/stop_string_matcher.h"
#include "tandem/v1/generate.pb.h"

namespace tandem {

// Looks at every committed token in turn. The first that ends the request ends it: what follows in
// the same round must not be pushed, and so is neither emitted nor counted.
//
// Stops count from the token after the first min_tokens on. A stop token's own text is left out
// like a stop string, unless include_stop_str_in_output asks for it. A token that both stops and is
// the last allowed one finishes with STOP.
class OutputProcessor {
 public:
  // Both must outlive it.
  OutputProcessor(const GenerationRequest* request, const Tokenizer* tokenizer);

  // Adds a token to the response under way. `logprobs` may be null; it is moved from when they were
  // asked for. True: the request is finished, and `completion` has finish and stop reason.
  bool Push(int32_t token_id, v1::TokenSource source, v1::TokenLogprobs* logprobs);

  // The response since the last Take.
  v1::GenerateResponse Take();

  int32_t num_tokens() const { return num_tokens_; }
  const v1::Completion& completion() const { return completion_; }

 private:
  bool IsStopToken(int32_t token_id) const;
  void EndText();

  const GenerationRequest* request_;
  StreamingDetokenizer detokenizer_;
  StopStringMatcher matcher_;
  v1::GenerateResponse response_;
  v1::Completion completion_;
  int32_t num_tokens_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_REQUEST_OUTPUT_PROCESSOR_H_
