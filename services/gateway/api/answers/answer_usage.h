// The usage of an answer: what all its choices took together.
#ifndef TANDEM_SERVICES_GATEWAY_API_ANSWERS_ANSWER_USAGE_H_
#define TANDEM_SERVICES_GATEWAY_API_ANSWERS_ANSWER_USAGE_H_

#include <string>

#include "google/protobuf/repeated_field.h"
#include "tandem/v1/generate.pb.h"

namespace tandem::gateway {

// Returns `,"warnings":[…]`, or nothing if there are none.
std::string WarningsMember(const google::protobuf::RepeatedPtrField<std::string>& warnings);

class AnswerUsage {
 public:
  // Adds the end of a choice. The choices of one prompt share its tokens, so the prompt counts with
  // the first one of them.
  void Add(const v1::Completion& completion, bool counts_prompt);

  const v1::Usage& tokens() const { return usage_; }
  // Returns `"usage":{…},"speculation":{…}`, and `,"warnings":[…]` if there are some.
  std::string Json() const;

 private:
  v1::Usage usage_;
  v1::SpeculationStats speculation_;
  google::protobuf::RepeatedPtrField<std::string> warnings_;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_ANSWERS_ANSWER_USAGE_H_
