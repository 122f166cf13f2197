#include "services/gateway/api/requests/completion_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "services/gateway/api/requests/tenant_name.h"

namespace tandem::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

v1::GenerateRequest Parsed(const std::string& body) {
  auto request = CompletionRequest::Parse(body);
  EXPECT_TRUE(request.ok()) << request.status();
  return request.ok() ? request->Take(0, "id") : v1::GenerateRequest();
}

std::string Refusal(const std::string& body) {
  const auto request = CompletionRequest::Parse(body);
  EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument) << body;
  return std::string(request.status().message());
}

TEST(CompletionRequestTest, EveryFieldOfOpenAiReachesItsPlace) {
  const v1::GenerateRequest request = Parsed(R"({
    "model": "m", "prompt": "One", "max_tokens": 7, "temperature": 0.5, "top_p": 0.25, "n": 1,
    "stop": ["a", "b"], "seed": 18446744073709551615, "logprobs": 2, "logit_bias": {"5": -1.5},
    "presence_penalty": 1, "frequency_penalty": -1})");
  EXPECT_EQ(request.model(), "m");
  EXPECT_EQ(request.prompt(), "One");
  EXPECT_EQ(request.request_id(), "id");
  const v1::SamplingParams& sampling = request.sampling_params();
  EXPECT_EQ(sampling.max_tokens(), 7);
  EXPECT_EQ(sampling.temperature(), 0.5f);
  EXPECT_EQ(sampling.top_p(), 0.25f);
  EXPECT_THAT(sampling.stop(), ElementsAre("a", "b"));
  EXPECT_EQ(sampling.seed(), 18446744073709551615u);
  EXPECT_EQ(sampling.logprobs(), 2);
  EXPECT_TRUE(sampling.logprobs_with_text());
  EXPECT_EQ(sampling.logit_bias().at(5), -1.5f);
  EXPECT_EQ(sampling.presence_penalty(), 1);
  EXPECT_EQ(sampling.frequency_penalty(), -1);
}

TEST(CompletionRequestTest, EveryExtraFieldReachesItsPlace) {
  const v1::GenerateRequest request = Parsed(R"({
    "prompt": [1, 2], "top_k": 4, "min_p": 0.125, "repetition_penalty": 1.5, "min_tokens": 3,
    "ignore_eos": true, "stop_token_ids": [9], "include_stop_str_in_output": true,
    "skip_special_tokens": false, "add_special_tokens": false,
    "prediction": {"type": "content", "content": [{"type": "text", "text": "x"}]},
    "speculation": {"enabled": true, "draft_length": 5, "drafter": "ngram", "reproducible": false,
                    "max_tree_nodes": 8}})");
  EXPECT_THAT(request.prompt_token_ids().ids(), ElementsAre(1, 2));
  const v1::SamplingParams& sampling = request.sampling_params();
  EXPECT_EQ(sampling.top_k(), 4);
  EXPECT_EQ(sampling.min_p(), 0.125f);
  EXPECT_EQ(sampling.repetition_penalty(), 1.5f);
  EXPECT_EQ(sampling.min_tokens(), 3);
  EXPECT_TRUE(sampling.ignore_eos());
  EXPECT_THAT(sampling.stop_token_ids(), ElementsAre(9));
  EXPECT_TRUE(sampling.include_stop_str_in_output());
  EXPECT_TRUE(sampling.has_skip_special_tokens() && !sampling.skip_special_tokens());
  EXPECT_TRUE(request.has_add_special_tokens() && !request.add_special_tokens());
  const v1::SpeculationParams& speculation = request.speculation();
  EXPECT_EQ(speculation.prediction().text(), "x");
  EXPECT_TRUE(speculation.has_enabled() && speculation.enabled());
  EXPECT_EQ(speculation.draft_length(), 5);
  EXPECT_EQ(speculation.drafter(), "ngram");
  EXPECT_TRUE(speculation.has_reproducible() && !speculation.reproducible());
  EXPECT_EQ(speculation.max_tree_nodes(), 8);
}

TEST(CompletionRequestTest, FieldsThatAreAbsentOrNullKeepTheRoutersDefaults) {
  for (const char* body : {R"({"prompt": "a"})",
                           R"({"prompt": "a", "temperature": null, "stop": null, "seed": null,
                               "max_tokens": null, "speculation": null, "suffix": null})"}) {
    const v1::GenerateRequest request = Parsed(body);
    EXPECT_EQ(request.sampling_params().max_tokens(), kDefaultMaxTokens);
    EXPECT_FALSE(request.sampling_params().has_temperature());
    EXPECT_FALSE(request.sampling_params().has_seed());
    EXPECT_FALSE(request.has_speculation());
  }
}

TEST(CompletionRequestTest, PromptsComeInFourForms) {
  const auto num_prompts = [](const std::string& prompt) {
    return CompletionRequest::Parse("{\"prompt\": " + prompt + "}")->num_prompts();
  };
  EXPECT_EQ(num_prompts("\"a\""), 1u);
  EXPECT_EQ(num_prompts("[1, 2]"), 1u);
  EXPECT_EQ(num_prompts("[\"a\", \"b\"]"), 2u);
  EXPECT_EQ(num_prompts("[[1], [2, 3], \"c\"]"), 3u);
  auto request = CompletionRequest::Parse(R"({"prompt": [[1], "c"]})");
  EXPECT_EQ(request->Take(1, "").prompt(), "c");
  EXPECT_THAT(request->Take(0, "").prompt_token_ids().ids(), ElementsAre(1));
}

TEST(CompletionRequestTest, UnknownFieldsAreIgnored) {
  EXPECT_EQ(Parsed(R"({"prompt": "a", "frobnicate": {"deep": [1]}, "speculation.drafter": "x",
                       "metadata": 7})")
                .prompt(),
            "a");
}

TEST(CompletionRequestTest, UnknownFieldsOfOurOwnObjectAreRefused) {
  EXPECT_THAT(Refusal(R"({"prompt": "a", "speculation": {"draft_lenght": 3}})"),
              StartsWith("speculation: got the unknown field \"draft_lenght\""));
}

TEST(CompletionRequestTest, FieldsThatWouldChangeTheAnswerAreRefusedByName) {
  EXPECT_THAT(Refusal(R"({"prompt": "a", "best_of": 2})"),
              StartsWith("best_of: got 2, allowed: 1"));
  EXPECT_THAT(Refusal(R"({"prompt": "a", "n": 129})"),
              StartsWith("n: got 129, allowed: at most 128"));
  EXPECT_EQ(Parsed(R"({"prompt": "a", "n": 0})").sampling_params().n(), 0);  // the router refuses
  EXPECT_TRUE(Parsed(R"({"prompt": "a", "n": 0})").sampling_params().has_n());
  EXPECT_THAT(Refusal(R"({"prompt": "a", "suffix": "b"})"), StartsWith("suffix: got a string"));
  EXPECT_THAT(Refusal(R"({"prompt": "a", "prompt_logprobs": 0})"), StartsWith("prompt_logprobs:"));
  EXPECT_EQ(Parsed(R"({"prompt": "a", "best_of": 1, "n": 1.0, "suffix": "",
                       "response_format": {"type": "text"}, "use_beam_search": false})")
                .prompt(),
            "a");
}

TEST(CompletionRequestTest, EchoWithLogprobsAsksForThoseOfThePrompt) {
  const auto asked = [](const char* body) { return Parsed(body).sampling_params(); };
  EXPECT_EQ(asked(R"({"prompt": "a", "echo": true, "logprobs": 3})").prompt_logprobs(), 3);
  EXPECT_TRUE(asked(R"({"prompt": "a", "echo": true, "logprobs": 0})").has_prompt_logprobs());
  EXPECT_TRUE(asked(R"({"prompt": "a", "echo": true, "max_tokens": 0})").has_prompt_logprobs());
  EXPECT_FALSE(asked(R"({"prompt": "a", "echo": true})").has_prompt_logprobs());
  EXPECT_FALSE(asked(R"({"prompt": "a", "logprobs": 3})").has_prompt_logprobs());
  EXPECT_EQ(Refusal(R"({"prompt": "a", "max_tokens": 0})"),
            "max_tokens: got 0, allowed: 1 or more; with echo also 0");
}

TEST(CompletionRequestTest, ValuesOfAnotherTypeAreRefusedByName) {
  EXPECT_EQ(Refusal(R"({"prompt": "a", "temperature": "0"})"),
            "temperature: got a string, allowed: a number");
  EXPECT_EQ(Refusal(R"({"prompt": "a", "max_tokens": 1.5})"),
            "max_tokens: got 1.5, allowed: an integer");
  EXPECT_EQ(Refusal(R"({"prompt": "a", "max_tokens": 3000000000})"),
            "max_tokens: got 3000000000, allowed: from 0 to 2147483647, as far as there is room");
  EXPECT_EQ(Refusal(R"({"prompt": "a", "stream": 1})"), "stream: got 1, allowed: a boolean");
  EXPECT_THAT(Refusal(R"({"prompt": [1, "a"]})"), StartsWith("prompt[1]: got a string"));
  EXPECT_THAT(Refusal(R"({"prompt": [-1]})"), StartsWith("prompt[0]: got -1"));
  EXPECT_THAT(Refusal(R"({"prompt": "a", "logit_bias": {"1x": 1}})"),
              StartsWith("logit_bias: got the key \"1x\""));
  EXPECT_THAT(Refusal(R"({"prompt": "a", "stream_options": {}})"), StartsWith("stream_options:"));
  EXPECT_EQ(Parsed(R"({"prompt": "a", "max_tokens": 3.0})").sampling_params().max_tokens(), 3);
}

TEST(CompletionRequestTest, BodiesThatAreNoObjectsAreRefused) {
  EXPECT_THAT(Refusal(""), HasSubstr("the body is empty"));
  EXPECT_THAT(Refusal("{\"prompt\": "), HasSubstr("ends too early"));
  EXPECT_THAT(Refusal("{\"prompt\": \"\xff\"}"), HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(Refusal("[]"), HasSubstr("want an object"));
  EXPECT_THAT(Refusal("{}"), StartsWith("prompt: got nothing"));
  EXPECT_THAT(Refusal(std::string(1000, '[')), HasSubstr("nested"));
  EXPECT_THAT(Refusal("{\"prompt\": \"a\", \"seed\": 1e999}"), HasSubstr("out of range"));
}

TEST(CompletionRequestTest, BodiesOfManyValuesAreRefusedBeforeTheyTakeMemory) {
  std::string body = "{\"prompt\": [";
  for (int i = 0; i < 70'000; ++i) body += "[],";
  EXPECT_THAT(Refusal(body + "[]]}"), HasSubstr("arrays and objects"));
  EXPECT_THAT(Refusal("{\"prompt\": [" + std::string(2 << 20, ',') + "]}"), HasSubstr("values"));
}

TEST(CompletionRequestTest, ManyPromptsAreRefused) {
  std::string body = "{\"prompt\": [";
  for (int i = 0; i < 256; ++i) body += "\"a\",";
  EXPECT_THAT(Refusal(body + "\"a\"]}"), StartsWith("prompt: got 257 prompts, allowed: at most"));
}

TEST(CompletionRequestTest, SeveralChoicesAreOneCallOfEachPrompt) {
  auto request = CompletionRequest::Parse(R"({"prompt": ["a", "b"], "n": 3})");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->num_prompts(), 2u);
  EXPECT_EQ(request->answer().num_choices, 3u);
  EXPECT_EQ(request->Take(1, "").sampling_params().n(), 3);
  EXPECT_FALSE(Parsed(R"({"prompt": "a", "n": 1})").sampling_params().has_n());
  std::string body = "{\"n\": 128, \"prompt\": [\"a\"";
  for (int i = 0; i < 8; ++i) body += ",\"a\"";
  EXPECT_THAT(Refusal(body + "]}"), StartsWith("n: got 128 with 9 prompts, allowed: at most 1024"));
}

TEST(TenantNameTest, NamesOfPrintableCharactersStayAsTheyAre) {
  EXPECT_EQ(*TenantName("team-7_x@example.org"), "team-7_x@example.org");
  EXPECT_EQ(*TenantName("a b%\xc3\xa4\n"), "a%20b%25%C3%A4%0A");
  EXPECT_EQ(*TenantName(std::string(256, 'a')), std::string(256, 'a'));
  EXPECT_THAT(std::string(TenantName(std::string(257, 'a')).status().message()),
              StartsWith("user: got 257 bytes"));
}

}  // namespace
}  // namespace tandem::gateway
