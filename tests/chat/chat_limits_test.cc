// Tests that a template that never ends, grows or nests without bounds is cut off soon, with an
// error that says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/chat/chat_cases.h"

namespace tandem {
namespace {

using chat_cases::Hello;
using testing::HasSubstr;

absl::StatusOr<std::string> Render(const std::string& source, const ChatTemplateLimits& limits = {},
                                   const ChatInput& input = Hello()) {
  const auto chat = ChatTemplate::Make(chat_cases::OneTemplate(source), limits);
  if (!chat.ok()) return chat.status();
  return chat->Render(input);
}

void ExpectCutOff(const std::string& source, const std::string& reason) {
  ChatTemplateLimits limits;
  limits.cpu_nanoseconds *= 20;  // Under sanitizers, steps take that much longer.
  const auto begin = std::chrono::steady_clock::now();
  const auto prompt = Render(source, limits);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(prompt.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(prompt.status().message()), HasSubstr(reason)) << source;
  // Far more than it takes (0.1 s), and far less than forever.
  EXPECT_LT(took.count(), 30) << source;
}

constexpr char kSteps[] = "was cut off after 4000000 steps";

TEST(ChatLimits, LoopsEndAfterTheLimitOfSteps) {
  ExpectCutOff(
      "{% for a in range(99999) %}{% for b in range(99999) %}{% set x = 1 %}"
      "{% endfor %}{% endfor %}",
      kSteps);
  ExpectCutOff("{% for a in range(99999) %}{% for b in range(99999) %}text{% endfor %}{% endfor %}",
               kSteps);
}

TEST(ChatLimits, TextsThatGrowInALoopEndAfterTheLimitOfSteps) {
  ExpectCutOff(
      "{% set ns = namespace(x='x') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}"
      "{% endfor %}",
      kSteps);
  ExpectCutOff(
      "{% set ns = namespace(x='xxxxxxxx') %}{% for i in range(100) %}"
      "{% set ns.x = ns.x.replace('x', ns.x) %}{% endfor %}",
      kSteps);
  ExpectCutOff("{% set x = 'x' * 1000000000 %}{{ x }}", kSteps);
  ExpectCutOff("{{ range(1000000000) | list }}", "range has too many elements");
}

TEST(ChatLimits, ListsThatHoldTheSameListManyTimesEnd) {
  const std::string list =
      "{% set ns = namespace(x=[1]) %}{% for i in range(64) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% endfor %}";
  for (const char* use :
       {"{{ ns.x }}", "{{ ns.x | tojson }}", "{{ ns.x | string }}", "{{ [ns.x] | join }}",
        "{{ '-'.join([ns.x]) }}", "{{ raise_exception(ns.x) }}", "{{ [ns.x, ns.x] | sort }}"}) {
    ExpectCutOff(list + use, kSteps);
  }
}

TEST(ChatLimits, WhatStepsDoNotCountEndsByMemoryOrTimeAndTheTemplateIsGivenUp) {
  ChatTemplateLimits limits;
  limits.memory_bytes = uint64_t{32} << 20;
  limits.cpu_nanoseconds = 100'000'000;
  const std::string list =
      "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(64) %}"
      "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}";
  const auto memory = ChatTemplate::Make(
      chat_cases::OneTemplate("{% set ns = namespace(x=['x']) %}{% for i in range(100) %}"
                              "{% set ns.x = ns.x + ns.x %}{% endfor %}"),
      limits);
  const auto time =
      ChatTemplate::Make(chat_cases::OneTemplate(list + "{{ ns.x == ns.y }}"), limits);
  ASSERT_TRUE(memory.ok() && time.ok());
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(std::string(memory->Render(Hello()).status().message()),
                HasSubstr("was cut off, because it took more than"));
    EXPECT_THAT(std::string(time->Render(Hello()).status().message()),
                HasSubstr("more than 100 ms of processor time"));
  }
  for (const auto* given_up : {&memory, &time}) {
    EXPECT_THAT(std::string((*given_up)->Render(Hello()).status().message()),
                HasSubstr("is not used any more"));
  }
}

TEST(ChatLimits, ListsThatNestDeepAreFreed) {
  const auto prompt = Render(
      "{% set ns = namespace(x=[1]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}"
      "{% endfor %}end");
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_EQ(*prompt, "end");
}

TEST(ChatLimits, MacrosThatCallThemselvesEnd) {
  ExpectCutOff("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
               "nested deeper than 400 levels");
  ExpectCutOff("{% macro f(x) %}{{ f(x) }}{{ f(x) }}{% endmacro %}{{ f(1) }}",
               "nested deeper than 400 levels");
  // Twice as many calls at each level end by the number of steps.
  ExpectCutOff(
      "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
      "{{ f(40) }}",
      kSteps);
}

TEST(ChatLimits, TemplatesThatNestWithoutEndAreRefused) {
  std::string blocks;
  for (int i = 0; i < 20'000; ++i) blocks += "{% if x %}";
  EXPECT_FALSE(Render(blocks).ok());
  EXPECT_FALSE(Render("{{ " + std::string(50'000, '(') + "1").ok());
  EXPECT_FALSE(Render("{{ " + std::string(50'000, '[')).ok());
}

TEST(ChatLimits, TheDepthFitsASmallStack) {
  // Threads of servers have at least this much.
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, size_t{2} << 20);
  pthread_t thread{};
  const auto run = [](void*) -> void* {
    ExpectCutOff(
        "{% macro f(x) %}{% for i in [1] %}{% if true %}{{ f([x]) }}{% endif %}{% endfor %}"
        "{% endmacro %}{{ f(1) }}",
        "nested deeper than 400 levels");
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, nullptr), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(ChatLimits, LongOutputsAreCutOff) {
  ChatTemplateLimits limits;
  limits.output_bytes = 100;
  EXPECT_TRUE(Render("{{ 'x' * 100 }}", limits).ok());
  const auto prompt = Render("{{ 'x' * 101 }}", limits);
  EXPECT_THAT(std::string(prompt.status().message()), HasSubstr("cut off after 100 bytes"));
}

TEST(ChatLimits, LongTemplatesAreRefused) {
  ChatTemplateLimits limits;
  limits.template_bytes = 100;
  EXPECT_TRUE(Render(std::string(100, 'x'), limits).ok());
  const auto prompt = Render(std::string(101, 'x'), limits);
  EXPECT_THAT(std::string(prompt.status().message()), HasSubstr("at most 100 are allowed"));
}

TEST(ChatLimits, MessagesMayBeLongAndMany) {
  const std::string source =
      chat_cases::ReadText(TANDEM_SOURCE_DIR "/tests/chat/templates/qwen3.jinja");
  ChatInput one;
  one.messages = {{{"role", "user"}, {"content", std::string(4'000'000, 'x')}}};
  const auto prompt = Render(source, {}, one);
  EXPECT_TRUE(prompt.ok()) << prompt.status();
  ChatInput many;
  for (int i = 0; i < 5'000; ++i) {
    many.messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", "Hello."}});
  }
  const auto other = Render(source, {}, many);
  EXPECT_TRUE(other.ok()) << other.status();
}

TEST(ChatLimits, DeepMessagesAreRefused) {
  nlohmann::ordered_json deep = "x";
  for (int i = 0; i < 200; ++i) deep = nlohmann::ordered_json::array({deep});
  ChatInput input = Hello();
  input.messages[0]["deep"] = deep;
  const auto prompt = Render("{{ messages | tojson }}", {}, input);
  EXPECT_THAT(std::string(prompt.status().message()), HasSubstr("nested deeper than 100 levels"));
}

}  // namespace
}  // namespace tandem
