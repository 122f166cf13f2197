// Reads the values of supported fields. The table of fields names a reader for each.
#ifndef TANDEM_SERVICES_GATEWAY_API_FIELDS_FIELD_READERS_H_
#define TANDEM_SERVICES_GATEWAY_API_FIELDS_FIELD_READERS_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/status.h"
#include "services/gateway/api/fields/json_body.h"
#include "services/gateway/api/fields/request_draft.h"

namespace tandem::gateway {

// Largest number of prompts of one request.
inline constexpr size_t kMaxPrompts = 256;
// Largest n that the gateway hands to the router, which may have a smaller limit.
inline constexpr int32_t kMaxN = 128;

// "temperature: got a string, allowed: a number".
absl::Status WrongType(const std::string& name, const Json& got, const std::string& allowed);

// Returns nothing if the value is no whole number of 64 bits. 3.0 is one.
std::optional<int64_t> WholeNumber(const Json& value);

// Returns a whole number from `least` to `most`.
absl::StatusOr<int32_t> ReadInRange(const std::string& name, const Json& value, int32_t least,
                                    int32_t most);

// The setters of a message have these types.
template <typename Message>
using FloatSetter = void (Message::*)(float);
template <typename Message>
using IntegerSetter = void (Message::*)(int32_t);
template <typename Message>
using SwitchSetter = void (Message::*)(bool);

inline v1::SamplingParams* PartOf(RequestDraft* draft, const v1::SamplingParams* /*type*/) {
  return draft->shared.mutable_sampling_params();
}
inline v1::SpeculationParams* PartOf(RequestDraft* draft, const v1::SpeculationParams* /*type*/) {
  return draft->shared.mutable_speculation();
}
inline v1::GenerateRequest* PartOf(RequestDraft* draft, const v1::GenerateRequest* /*type*/) {
  return &draft->shared;
}

template <typename Message, FloatSetter<Message> set>
absl::Status ReadNumber(const std::string& name, const Json& value, RequestDraft* draft) {
  if (!value.is_number()) return WrongType(name, value, "a number");
  (PartOf(draft, static_cast<Message*>(nullptr))->*set)(static_cast<float>(value.get<double>()));
  return absl::OkStatus();
}

template <typename Message, IntegerSetter<Message> set>
absl::Status ReadInteger(const std::string& name, const Json& value, RequestDraft* draft) {
  const std::optional<int64_t> number = WholeNumber(value);
  if (!number.has_value()) return WrongType(name, value, "an integer");
  if (*number < std::numeric_limits<int32_t>::min() ||
      *number > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument(name + ": got " + std::to_string(*number) +
                           ", allowed: an integer of 32 bits");
  }
  (PartOf(draft, static_cast<Message*>(nullptr))->*set)(static_cast<int32_t>(*number));
  return absl::OkStatus();
}

// A number of tokens, `least` or more.
template <std::optional<int32_t> RequestDraft::*limit, int32_t least>
absl::Status ReadLimit(const std::string& name, const Json& value, RequestDraft* draft) {
  TANDEM_ASSIGN_OR_RETURN(draft->*limit,
                          ReadInRange(name, value, least, std::numeric_limits<int32_t>::max()));
  return absl::OkStatus();
}

template <typename Message, SwitchSetter<Message> set>
absl::Status ReadSwitch(const std::string& name, const Json& value, RequestDraft* draft) {
  if (!value.is_boolean()) return WrongType(name, value, "a boolean");
  (PartOf(draft, static_cast<Message*>(nullptr))->*set)(value.get<bool>());
  return absl::OkStatus();
}

template <bool AnswerOptions::*option>
absl::Status ReadOption(const std::string& name, const Json& value, RequestDraft* draft) {
  if (!value.is_boolean()) return WrongType(name, value, "a boolean");
  draft->answer.*option = value.get<bool>();
  return absl::OkStatus();
}

// A content of OpenAI's messages: a text, or a list of text parts, which are joined with the
// separator between them.
absl::Status ReadContent(const std::string& name, const Json& content, const char* separator,
                         std::string* text);
absl::Status ReadNumChoices(const std::string& name, const Json& value, RequestDraft* draft);
absl::Status ReadModel(const std::string& name, const Json& value, RequestDraft* draft);
absl::Status ReadUser(const std::string& name, const Json& value, RequestDraft* draft);
// A text, token ids, or a list of texts or of lists of token ids.
absl::Status ReadPrompts(const std::string& name, const Json& value, RequestDraft* draft);
absl::Status ReadText(const std::string& name, const Json& value, RequestDraft* draft);
absl::Status ReadTokens(const std::string& name, const Json& value, RequestDraft* draft);
absl::Status ReadSeed(const std::string& name, const Json& value, RequestDraft* draft);
absl::Status ReadStop(const std::string& name, const Json& value, RequestDraft* draft);
absl::Status ReadStopTokenIds(const std::string& name, const Json& value, RequestDraft* draft);
absl::Status ReadLogitBias(const std::string& name, const Json& value, RequestDraft* draft);
// The number of alternatives in the shape of completions.
absl::Status ReadLogprobs(const std::string& name, const Json& value, RequestDraft* draft);
absl::Status ReadStreamOptions(const std::string& name, const Json& value, RequestDraft* draft);
absl::Status ReadPrediction(const std::string& name, const Json& value, RequestDraft* draft);
absl::Status ReadSpeculation(const std::string& name, const Json& value, RequestDraft* draft);
absl::Status ReadDrafter(const std::string& name, const Json& value, RequestDraft* draft);

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_FIELDS_FIELD_READERS_H_
