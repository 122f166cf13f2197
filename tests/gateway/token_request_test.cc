#include "services/gateway/api/requests/token_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace tandem::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

TEST(TokenRequestTest, BodiesHaveVllmsShapes) {
  const auto tokenize =
      ParseTokenize(R"({"model": "m", "prompt": "a", "add_special_tokens": false})");
  ASSERT_TRUE(tokenize.ok()) << tokenize.status();
  EXPECT_EQ(tokenize->model, "m");
  EXPECT_EQ(tokenize->request.text(), "a");
  EXPECT_TRUE(tokenize->request.has_add_special_tokens());
  EXPECT_FALSE(tokenize->request.add_special_tokens());
  EXPECT_FALSE(ParseTokenize(R"({"prompt": ""})")->request.has_add_special_tokens());
  const auto detokenize = ParseDetokenize(R"({"tokens": [3, 4]})");
  ASSERT_TRUE(detokenize.ok()) << detokenize.status();
  EXPECT_THAT(detokenize->request.ids(), ElementsAre(3, 4));
  EXPECT_TRUE(detokenize->request.has_skip_special_tokens());
  EXPECT_FALSE(detokenize->request.skip_special_tokens());
}

TEST(TokenRequestTest, BadBodiesAreRefusedByName) {
  EXPECT_THAT(std::string(ParseTokenize("{}").status().message()), StartsWith("prompt: got"));
  EXPECT_THAT(std::string(ParseTokenize(R"({"prompt": ["a"]})").status().message()),
              StartsWith("prompt: got an array"));
  EXPECT_THAT(
      std::string(
          ParseTokenize(R"({"prompt": "a", "return_token_strs": true})").status().message()),
      StartsWith("return_token_strs: got true"));
  EXPECT_THAT(std::string(ParseDetokenize(R"({"tokens": ["a"]})").status().message()),
              StartsWith("tokens[0]: got a string"));
}

TEST(TokenRequestTest, AnswersHaveVllmsShapes) {
  v1::TokenizeResponse tokens;
  tokens.add_ids(5);
  tokens.add_ids(6);
  EXPECT_EQ(nlohmann::json::parse(TokenizeBody(tokens, 100)),
            nlohmann::json::parse(
                R"({"count": 2, "max_model_len": 100, "tokens": [5, 6], "token_strs": null})"));
  v1::DetokenizeResponse text;
  text.set_text("\"");
  EXPECT_EQ(DetokenizeBody(text), R"({"prompt":"\""})");
}

}  // namespace
}  // namespace tandem::gateway
