// Makes the router's requests from bodies of HTTP.
//
// The first byte chooses the endpoint. The rest is the body.
#include <string>

#include "services/gateway/api/answers/error_shape.h"
#include "services/gateway/api/fields/json_body.h"
#include "services/gateway/api/requests/completion_request.h"
#include "services/gateway/api/requests/token_request.h"
#include "services/gateway/api/tools/tool_call_parser.h"
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

void CheckCompletion(absl::StatusOr<gateway::CompletionRequest> request) {
  if (!request.ok()) return CheckError(request.status());
  Check(request->num_prompts() > 0, "a request has a prompt");
  for (size_t i = 0; i < request->num_prompts(); ++i) {
    const v1::GenerateRequest generate = request->Take(i, "id");
    Check(generate.input_case() != v1::GenerateRequest::INPUT_NOT_SET, "each choice has a prompt");
    Check(generate.sampling_params().has_max_tokens() || request->answer().is_chat,
          "max_tokens has its default");
    CheckSerializes(generate);
  }
}

// Finds calls in an output. The first byte chooses the format, and the second one the size of the
// pieces.
void CheckCalls(std::string_view output) {
  if (output.size() < 2) return;
  constexpr std::string_view kFormats[] = {"hermes", "llama3_json", "mistral"};
  static const gateway::ToolNames kTools = {"f", "g"};
  const std::string_view format = kFormats[static_cast<uint8_t>(output[0]) % 3];
  const size_t piece = 1 + static_cast<uint8_t>(output[1]) % 16;
  output.remove_prefix(2);
  gateway::ToolOutput whole;
  gateway::ToolOutput parts;
  const auto of_whole = gateway::MakeToolCallParser(format, &kTools);
  const auto of_parts = gateway::MakeToolCallParser(format, &kTools);
  of_whole->Push(output, &whole);
  of_whole->Finish(&whole);
  for (size_t at = 0; at < output.size(); at += piece) {
    of_parts->Push(output.substr(at, piece), &parts);
  }
  of_parts->Finish(&parts);
  Check(!whole.calls.empty() || whole.content == output, "an output without a call stays as it is");
  Check(whole.content == parts.content, "the content does not depend on the pieces");
  Check(of_whole->has_complete_calls() == of_parts->has_complete_calls(), "nor does the end");
  size_t named = 0;
  for (const gateway::ToolCallDelta& delta : whole.calls) {
    if (!delta.name.empty()) Check(delta.index == named++, "calls are numbered in their order");
    Check(delta.name.empty() || kTools.contains(delta.name), "a call has the name of a tool");
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
  const unsigned endpoint = input.Byte() % 5;
  const std::string_view body = input.Rest();
  if (endpoint == 0) fuzz::CheckCompletion(gateway::CompletionRequest::Parse(body));
  if (endpoint == 3) fuzz::CheckCompletion(gateway::CompletionRequest::ParseChat(body));
  if (endpoint == 4) fuzz::CheckCalls(body);
  if (endpoint == 1) fuzz::CheckTokens(gateway::ParseTokenize(body));
  if (endpoint == 2) fuzz::CheckTokens(gateway::ParseDetokenize(body));
  return 0;
}
