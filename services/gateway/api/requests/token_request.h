// The bodies of POST /v1/tokenize and /v1/detokenize, in vLLM's shapes.
#ifndef TANDEM_SERVICES_GATEWAY_API_REQUESTS_TOKEN_REQUEST_H_
#define TANDEM_SERVICES_GATEWAY_API_REQUESTS_TOKEN_REQUEST_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tandem/v1/generate.pb.h"

namespace tandem::gateway {

template <typename Request>
struct TokenCall {
  Request request;
  std::string model;  // empty: the served model
};

// INVALID_ARGUMENT: the message begins with the name of the field.
absl::StatusOr<TokenCall<v1::TokenizeRequest>> ParseTokenize(std::string_view body);
absl::StatusOr<TokenCall<v1::DetokenizeRequest>> ParseDetokenize(std::string_view body);

std::string TokenizeBody(const v1::TokenizeResponse& response, int32_t max_model_len);
std::string DetokenizeBody(const v1::DetokenizeResponse& response);

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_REQUESTS_TOKEN_REQUEST_H_
