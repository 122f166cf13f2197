// Writes one choice of an answer, in the shape of the endpoint.
#ifndef TANDEM_SERVICES_GATEWAY_API_ANSWERS_CHOICE_WRITER_H_
#define TANDEM_SERVICES_GATEWAY_API_ANSWERS_CHOICE_WRITER_H_

#include <string>

#include "tandem/v1/generate.pb.h"

namespace tandem::gateway {

// The router's messages of the choice come in their order.
class ChoiceWriter {
 public:
  virtual ~ChoiceWriter() = default;

  virtual void Add(const v1::GenerateResponse& message) = 0;
  // Whether a client would see what was added since the last Take.
  virtual bool has_news() const = 0;
  // Adds what a message says of the prompt. Called before Add of this and of later messages.
  virtual void AddPrompt(const v1::GenerateResponse& /*message*/) {}
  // Returns the choice as a JSON object with what was added since the last Take. For a whole answer
  // this is called once, at the end.
  virtual std::string Take() = 0;
};

// Return JSON: a string, a number or null.
std::string FinishReasonText(const v1::Completion& completion);
std::string StopReasonText(const v1::Completion& completion);

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_ANSWERS_CHOICE_WRITER_H_
