// The conversations and templates of this folder, as ChatTemplate takes them.
#ifndef TANDEM_TESTS_CHAT_CHAT_CASES_H_
#define TANDEM_TESTS_CHAT_CHAT_CASES_H_

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "common/chat/chat_template.h"

namespace tandem::chat_cases {

// 2025-07-01 09:05 UTC, which oracle.py uses too.
constexpr std::time_t kNow = 1751328000 + 3600 * 9 + 60 * 5;

inline std::string ReadText(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline nlohmann::ordered_json ReadJson(const std::filesystem::path& path) {
  return nlohmann::ordered_json::parse(ReadText(path));
}

inline TemplateFiles OneTemplate(
    const std::string& source,
    const nlohmann::ordered_json& special_tokens = nlohmann::ordered_json::object()) {
  TemplateFiles files;
  files.templates["default"] = source;
  files.place = "here";
  files.special_tokens = special_tokens;
  return files;
}

// A case of cases.json: messages, add_generation_prompt, kwargs, and whether `tools` are given.
inline ChatInput InputOf(const nlohmann::ordered_json& test_case,
                         const nlohmann::ordered_json& tools) {
  ChatInput input;
  input.messages = test_case.at("messages");
  if (test_case.value("tools", false)) input.tools = tools;
  if (test_case.contains("kwargs")) input.kwargs = test_case["kwargs"];
  input.add_generation_prompt = test_case.value("add_generation_prompt", true);
  input.now = kNow;
  return input;
}

inline ChatInput Hello() {
  ChatInput input;
  input.messages = {{{"role", "user"}, {"content", "Hello."}}};
  return input;
}

inline void UseUtc() {
  setenv("TZ", "UTC", 1);
  tzset();
}

}  // namespace tandem::chat_cases

#endif  // TANDEM_TESTS_CHAT_CHAT_CASES_H_
