// Makes the router's requests from bodies of HTTP.
//
// The first byte chooses the endpoint. The rest is the body.
#include <string>

#include "services/gateway/api/completion_request.h"
#include "services/gateway/api/error_shape.h"
#include "services/gateway/api/json_body.h"
#include "services/gateway/api/token_request.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"

namespace tandem::fuzz {
namespace {

// Checks that the message can go to the router: strings are UTF-8, because protobuf is read again.
template <typename Message>
void CheckSerializes(const Message& message) {
  Message again;
  Check(again.ParseFromString(message.SerializeAsString()), "the message can be read again");
}

void CheckError(const absl::Status& status) {
  Check(status.code() == absl::StatusCode::kInvalidArgument, "a bad body is the client's fault");
  const gateway::ApiError error = gateway::ErrorOf(status);
  Check(error.http == 400, "a bad body has status 400");
  Check(gateway::ParseJsonBody(gateway::ErrorBody(error)).ok(), "the error is JSON");
}

void CheckCompletion(std::string_view body) {
  auto request = gateway::CompletionRequest::Parse(body);
  if (!request.ok()) return CheckError(request.status());
  Check(request->num_choices() > 0, "a request has a prompt");
  for (size_t i = 0; i < request->num_choices(); ++i) {
    const v1::GenerateRequest generate = request->Take(i, "id");
    Check(generate.input_case() != v1::GenerateRequest::INPUT_NOT_SET, "each choice has a prompt");
    Check(generate.sampling_params().has_max_tokens(), "max_tokens has its default");
    CheckSerializes(generate);
  }
}

template <typename Parsed>
void CheckTokens(const Parsed& parsed) {
  if (!parsed.ok()) return CheckError(parsed.status());
  CheckSerializes(parsed->request);
}

}  // namespace
}  // namespace tandem::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  fuzz::FuzzInput input(data, size);
  const unsigned endpoint = input.Byte() % 3;
  const std::string_view body = input.Rest();
  if (endpoint == 0) fuzz::CheckCompletion(body);
  if (endpoint == 1) fuzz::CheckTokens(gateway::ParseTokenize(body));
  if (endpoint == 2) fuzz::CheckTokens(gateway::ParseDetokenize(body));
  return 0;
}
