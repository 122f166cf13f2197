// Tests that token ids and texts are exactly those of Hugging Face.
// tests/golden/make_tokenizer_golden.py made the cases.
#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

const std::filesystem::path kGolden = TANDEM_SOURCE_DIR "/tests/golden/tokenizer";

nlohmann::json ReadJson(const std::filesystem::path& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

std::string Sha256OfIds(const std::vector<int32_t>& ids) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned length = 0;
  EVP_Digest(ids.data(), ids.size() * sizeof(int32_t), digest.data(), &length, EVP_sha256(),
             nullptr);
  std::string hex;
  for (unsigned i = 0; i < length; ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[digest[i] >> 4];
    hex += kDigits[digest[i] & 15];
  }
  return hex;
}

class TokenizerGoldenTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    const auto folder = name == "tales"
                            ? std::filesystem::path(TANDEM_SOURCE_DIR "/models/tales/target")
                            : kGolden / name;
    auto tokenizer = Tokenizer::Load(folder);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = std::move(tokenizer).value();
    cases_ = ReadJson(kGolden / name / "cases.json");
  }

  void ExpectIds(const std::string& text, const std::vector<int32_t>& want) const {
    const auto ids = tokenizer_->Encode(text, /*add_special_tokens=*/true);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, want) << text;

    const size_t num_before = cases_["num_before"];
    const size_t num_after = cases_["num_after"];
    const std::vector<int32_t> bare(want.begin() + num_before, want.end() - num_after);
    const auto without = tokenizer_->Encode(text, /*add_special_tokens=*/false);
    ASSERT_TRUE(without.ok()) << without.status();
    EXPECT_EQ(*without, bare) << text;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  nlohmann::json cases_;
};

TEST_P(TokenizerGoldenTest, EncodesTextInManyScriptsLikeHuggingFace) {
  const auto texts = ReadJson(kGolden / "texts.json").get<std::vector<std::string>>();
  const auto ids = cases_["ids"].get<std::vector<std::vector<int32_t>>>();
  ASSERT_EQ(texts.size(), ids.size());
  for (size_t i = 0; i < texts.size(); ++i) ExpectIds(texts[i], ids[i]);
}

TEST_P(TokenizerGoldenTest, FindsAddedTokensLikeHuggingFace) {
  const auto texts = cases_["added_texts"].get<std::vector<std::string>>();
  const auto ids = cases_["added_ids"].get<std::vector<std::vector<int32_t>>>();
  ASSERT_EQ(texts.size(), ids.size());
  for (size_t i = 0; i < texts.size(); ++i) ExpectIds(texts[i], ids[i]);
}

TEST_P(TokenizerGoldenTest, EncodesLongRunsLikeHuggingFace) {
  for (const nlohmann::json& run : cases_["runs"]) {
    const std::string unit = run["text"];
    const size_t count = run["count"];
    std::string text;
    for (size_t i = 0; i < count; ++i) text += unit;
    const auto ids = tokenizer_->Encode(text, /*add_special_tokens=*/true);
    ASSERT_TRUE(ids.ok()) << ids.status() << " for a run of " << unit;
    EXPECT_EQ(ids->size(), run["num_ids"].get<size_t>()) << unit;
    EXPECT_EQ(Sha256OfIds(*ids), run["sha256"].get<std::string>()) << unit;
  }
}

TEST_P(TokenizerGoldenTest, DecodesEveryPrefixLikeHuggingFaceAtOnceAndAsAStream) {
  for (const nlohmann::json& decode : cases_["decode"]) {
    const auto ids = decode["ids"].get<std::vector<int32_t>>();
    const auto prefixes = decode["prefixes"].get<std::vector<std::string>>();
    const bool skip = decode["skip"];
    StreamingDetokenizer stream(tokenizer_.get(), skip);
    std::string streamed;
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(tokenizer_->Decode(std::span(ids).first(i + 1), skip), prefixes[i]) << decode;
      streamed += stream.Push(ids[i]);
      StreamingDetokenizer ended = stream;
      EXPECT_EQ(streamed + ended.Finish(), prefixes[i]) << decode;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TokenizerGoldenTest,
                         testing::Values("gpt2", "llama3", "qwen2", "o200k", "deepseek",
                                         "behaviors", "whitespace", "added", "llama2", "mistral",
                                         "metaspace", "partial_bytes", "tales"),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace tandem
