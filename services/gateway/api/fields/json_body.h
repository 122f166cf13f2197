// Parses the body of a request, within limits on what it may become in memory.
#ifndef TANDEM_SERVICES_GATEWAY_API_FIELDS_JSON_BODY_H_
#define TANDEM_SERVICES_GATEWAY_API_FIELDS_JSON_BODY_H_

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tandem::gateway {

using Json = nlohmann::json;

// A value takes 16 bytes, and an array or an object about 64 more. So a body of a few MiB that
// consists of brackets would take hundreds of MiB without these limits.
struct JsonLimits {
  int depth = 64;
  size_t values = 1 << 20;       // values of arrays and objects, all together
  size_t containers = 64 << 10;  // arrays and objects
};

// Returns the object that the body is. INVALID_ARGUMENT: the body is no JSON (RFC 8259) in UTF-8,
// exceeds a limit, or is another value than an object. The message says where.
absl::StatusOr<Json> ParseJsonBody(std::string_view body, const JsonLimits& limits = {});

// Returns the JSON of a member of the object that `body` is, with its keys in the order in which
// they were sent, which ParseJsonBody loses. PRECOND: the body was parsed, and has the member.
std::string OrderedMember(std::string_view body, std::string_view name);

// Returns the name of the type of a value for errors: "a string", "an array".
std::string_view TypeText(const Json& value);

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_FIELDS_JSON_BODY_H_
