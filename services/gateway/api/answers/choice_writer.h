// Writes one choice of an answer, in the shape of the endpoint.
#ifndef TANDEM_SERVICES_GATEWAY_API_ANSWERS_CHOICE_WRITER_H_
#define TANDEM_SERVICES_GATEWAY_API_ANSWERS_CHOICE_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/v1/generate.pb.h"

namespace tandem::gateway {

// The router's messages of the choice come in their order.
class ChoiceWriter {
 public:
  virtual ~ChoiceWriter() = default;

  virtual void Add(const v1::GenerateResponse& message) = 0;
  // Adds what a message says of the prompt. Called before Add of this and of later messages.
  virtual void AddPrompt(const v1::GenerateResponse& /*message*/) {}
  // Whether a client would see what was added since the last Take.
  virtual bool has_news() const = 0;
  // Returns the choice as a JSON object with what was added since the last Take. For a whole answer
  // this is called once, at the end.
  virtual std::string Take() = 0;
};

// Returns JSON: a string or null.
std::string FinishReasonText(const v1::Completion& completion);
// Returns JSON: the stop string, the stop token if the client gave it, or null.
std::string StopReasonText(const v1::Completion& completion,
                           const std::vector<int32_t>& stop_token_ids);

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_ANSWERS_CHOICE_WRITER_H_
