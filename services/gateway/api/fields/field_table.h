// The table of the fields of requests: which ones are supported, ignored or refused, and why. The
// parser is driven by it, and the tables of docs/openai.md are made from it.
#ifndef TANDEM_SERVICES_GATEWAY_API_FIELDS_FIELD_TABLE_H_
#define TANDEM_SERVICES_GATEWAY_API_FIELDS_FIELD_TABLE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "services/gateway/api/fields/json_body.h"
#include "services/gateway/api/fields/request_draft.h"

namespace tandem::gateway {

// The endpoints that take a body, as bits of a set.
enum Endpoint : uint8_t { kCompletions = 1, kTokenize = 2, kDetokenize = 4, kChat = 8 };

enum class Treatment : uint8_t {
  kSupported,
  kIgnored,  // any value is accepted, and the answer does not depend on it
  kRefused,  // the field would change the answer, so only its harmless values are accepted
};

// The API that had the field first.
enum class Origin : uint8_t { kOpenAi, kVllm, kTandem };

// Reads the value into the draft. The value is never null. INVALID_ARGUMENT: the message begins
// with the name of the field.
using FieldReader = absl::Status (*)(const std::string& name, const Json& value,
                                     RequestDraft* draft);

struct Field {
  std::string_view
      name;           // "speculation.drafter" is the field `drafter` of the object `speculation`
  uint8_t endpoints;  // a set of Endpoint
  Origin origin;
  Treatment treatment;
  FieldReader read = nullptr;      // set if and only if the field is supported
  std::string_view harmless = {};  // refused fields: accepted values as JSON, with | between them
  std::string_view note;           // what it does, or why it is refused: complete sentences
};

std::span<const Field> FieldTable();

// Returns null if the endpoint has no row of this name.
const Field* FindField(std::string_view name, Endpoint endpoint);

// Reads the fields of `body`, an object. `prefix` is empty, or the name of the object in the table
// with a dot. A field that is null counts as absent. Unknown fields of the body itself are ignored,
// as OpenAI ignores them. Those of our own objects are refused, because they are typing errors.
// INVALID_ARGUMENT: the message begins with the name of the field.
absl::Status ReadFields(const Json& body, Endpoint endpoint, const std::string& prefix,
                        RequestDraft* draft);

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_FIELDS_FIELD_TABLE_H_
