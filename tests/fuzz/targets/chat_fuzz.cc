// Compiles a chat template and renders a conversation with it, within small limits.
//
// The input is the template up to the first zero byte, and then a request in JSON: {"messages",
// "tools", "kwargs"}. What is not JSON is the content of a message.
#include <string>

#include "common/chat/chat_template.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"

namespace tandem::fuzz {
namespace {

using Json = nlohmann::ordered_json;

ChatInput InputOf(std::string_view bytes) {
  ChatInput input;
  input.now = 0;
  const Json request = Json::parse(bytes, nullptr, /*allow_exceptions=*/false);
  if (request.is_object()) {
    input.messages = request.value("messages", Json());
    input.tools = request.value("tools", Json());
    input.kwargs = request.value("kwargs", Json());
  } else {
    input.messages = {{{"role", "user"}, {"content", std::string(bytes)}}};
  }
  return input;
}

}  // namespace
}  // namespace tandem::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  const std::string_view bytes = fuzz::FuzzInput(data, size).Rest();
  const size_t template_bytes = std::min(bytes.find('\0'), bytes.size());
  ChatTemplateLimits limits;
  limits.steps = 20'000;
  limits.output_bytes = 10'000;
  TemplateFiles files;
  files.templates["default"] = std::string(bytes.substr(0, template_bytes));
  files.place = "input";
  files.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  const auto chat = ChatTemplate::Make(files, limits);
  if (!chat.ok()) {
    fuzz::Check(chat.status().code() == absl::StatusCode::kInvalidArgument,
                "a template that does not compile is an argument that is invalid");
    return 0;
  }
  const ChatInput input = fuzz::InputOf(bytes.substr(std::min(template_bytes + 1, bytes.size())));
  const auto prompt = chat->Render(input);
  if (prompt.ok()) {
    fuzz::Check(prompt->size() <= limits.output_bytes, "a prompt is within the limit");
    fuzz::Check(chat->Render(input) == prompt, "a conversation has one prompt");
  } else {
    fuzz::Check(prompt.status().code() == absl::StatusCode::kInvalidArgument,
                "a conversation that cannot be rendered is an argument that is invalid");
  }
  return 0;
}
