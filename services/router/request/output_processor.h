// Turns committed tokens into the client's responses: text, stops, limits.
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

// Takes the committed tokens in order, until one ends the request. The caller must not push the
// tokens that follow in the same round, so they are neither emitted nor counted.
//
// Stops count after the first min_tokens tokens. The text of a stop token is left out, like a stop
// string, unless include_stop_str_in_output asks for it. If a token both stops and is the last
// allowed token, the request finishes with STOP.
class OutputProcessor {
 public:
  // Both must outlive the object.
  OutputProcessor(const GenerationRequest* request, const Tokenizer* tokenizer);

  // Adds a token to the current response. `logprobs` may be null. If the request wants logprobs,
  // `logprobs` is moved from. Returns true if the request is finished. Then `completion` has the
  // finish reason and the stop reason.
  bool Push(int32_t token_id, v1::TokenSource source, v1::TokenLogprobs* logprobs);

  // Adds the log-probabilities of the prompt's next token to the current response.
  void PushPrompt(int32_t token_id, v1::TokenLogprobs& logprobs);
  // Finishes a request that wants no output.
  void FinishWithoutOutput() { completion_.set_finish_reason(v1::FINISH_REASON_LENGTH); }

  // Returns the response with the tokens since the last Take.
  v1::GenerateResponse Take();

  int32_t num_tokens() const { return num_tokens_; }
  uint32_t num_scores() const { return num_scores_; }  // calls of PushPrompt
  const v1::Completion& completion() const { return completion_; }

 private:
  bool IsStopToken(int32_t token_id) const;
  void EndText();

  // Adds text and bytes to the log-probs of a token, or to what else has both.
  void AddText(int32_t token_id, v1::TokenLogprobs* logprobs) const;
  template <typename Entry>
  void FillText(int32_t token_id, Entry* entry) const;

  const GenerationRequest* request_;
  const Tokenizer* tokenizer_;
  StreamingDetokenizer detokenizer_;
  StopStringMatcher matcher_;
  v1::GenerateResponse response_;
  v1::Completion completion_;
  int32_t num_tokens_ = 0;
  uint32_t num_scores_ = 0;
  bool has_begun_ = false;  // a response was taken
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_REQUEST_OUTPUT_PROCESSOR_H_
