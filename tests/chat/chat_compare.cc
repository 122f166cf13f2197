// For scripts: reads a request with a template in JSON from each line of standard input, and writes
// the prompt or the error as JSON. Compare with `oracle.py --render`.
#include <iostream>
#include <string>

#include "tests/chat/chat_cases.h"

int main() {
  using namespace tandem;
  chat_cases::UseUtc();
  for (std::string line; std::getline(std::cin, line);) {
    const auto request = nlohmann::ordered_json::parse(line);
    const auto chat = ChatTemplate::Make(chat_cases::OneTemplate(
        request.at("template"), request.value("special_tokens", nlohmann::ordered_json::object())));
    absl::StatusOr<std::string> prompt;
    if (!chat.ok()) {
      prompt = chat.status();
    } else {
      prompt = chat->Render(
          chat_cases::InputOf(request, request.value("all_tools", nlohmann::ordered_json())));
    }
    nlohmann::ordered_json answer;
    answer[prompt.ok() ? "text" : "error"] =
        prompt.ok() ? *prompt : std::string(prompt.status().message());
    std::cout << answer.dump() << std::endl;
  }
}
