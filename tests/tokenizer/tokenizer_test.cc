#include "common/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace tandem {
namespace {

std::unique_ptr<Tokenizer> LoadGolden(const std::string& name) {
  auto tokenizer =
      Tokenizer::Load(std::string(TANDEM_SOURCE_DIR "/tests/golden/tokenizer/") + name);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return std::move(tokenizer).value();
}

int32_t IdOf(const Tokenizer& tokenizer, const std::string& entry) {
  for (size_t id = 0; id < tokenizer.num_entries(); ++id) {
    if (tokenizer.Entry(static_cast<int32_t>(id)) == entry) return static_cast<int32_t>(id);
  }
  ADD_FAILURE() << "no entry " << entry;
  return -1;
}

// Returns the result of Push for each token, and then of Finish.
std::vector<std::string> Stream(const Tokenizer& tokenizer,
                                const std::vector<std::string>& entries) {
  StreamingDetokenizer stream(&tokenizer, /*skip_special_tokens=*/true);
  std::vector<std::string> pieces;
  for (const std::string& entry : entries) pieces.push_back(stream.Push(IdOf(tokenizer, entry)));
  pieces.push_back(stream.Finish());
  return pieces;
}
using Pieces = std::vector<std::string>;

TEST(TokenizerTest, RefusesTextThatIsNotUtf8) {
  const auto tokenizer = LoadGolden("llama3");
  const auto ids = tokenizer->Encode("ab\xC3", true);
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ids.status().message(), "text: not UTF-8 at byte 2");
}

TEST(TokenizerTest, KnowsItsEntries) {
  const auto tokenizer = LoadGolden("llama3");
  const int32_t begin = IdOf(*tokenizer, "<|begin_of_text|>");
  EXPECT_TRUE(tokenizer->IsSpecial(begin));
  EXPECT_FALSE(tokenizer->IsSpecial(begin - 1000));
  EXPECT_EQ(tokenizer->num_entries(),
            static_cast<size_t>(begin) + 4);  // followed by the four special tokens at the end
  const auto missing = static_cast<int32_t>(tokenizer->num_entries());
  EXPECT_EQ(tokenizer->Entry(missing), "");
  EXPECT_EQ(tokenizer->Entry(-1), "");
  EXPECT_EQ(tokenizer->TokenBytes(missing), "");
  EXPECT_EQ(tokenizer->Decode(std::array{missing, -1}, false), "");
}

TEST(TokenizerTest, GivesTheBytesOfTokens) {
  const auto llama3 = LoadGolden("llama3");
  EXPECT_EQ(llama3->TokenBytes(IdOf(*llama3, "Ġ")), " ");
  EXPECT_EQ(llama3->TokenBytes(IdOf(*llama3, "Ñ")), "\xD1");
  EXPECT_EQ(llama3->TokenBytes(IdOf(*llama3, "<|eot_id|>")), "<|eot_id|>");
  EXPECT_FALSE(llama3->StripsLeadingSpace());
  const auto llama2 = LoadGolden("llama2");
  EXPECT_EQ(llama2->TokenBytes(IdOf(*llama2, "▁")), " ");
  EXPECT_EQ(llama2->TokenBytes(IdOf(*llama2, "<0xFF>")), "\xFF");
  EXPECT_TRUE(llama2->StripsLeadingSpace());
}

TEST(TokenizerTest, FingerprintsDependOnTheEntriesOnly) {
  // These two have different settings and equal entries.
  EXPECT_EQ(LoadGolden("behaviors")->Fingerprint(), LoadGolden("whitespace")->Fingerprint());
  EXPECT_NE(LoadGolden("behaviors")->Fingerprint(), LoadGolden("gpt2")->Fingerprint());
  EXPECT_NE(LoadGolden("llama2")->Fingerprint(), LoadGolden("mistral")->Fingerprint());
}

TEST(TokenizerTest, StreamsWholeCharactersOnly) {
  const auto tokenizer = LoadGolden("llama3");
  // 🙂 is F0 9F 99 82.
  EXPECT_EQ(Stream(*tokenizer, {"a", "ð", "Ł", "Ļ", "Ĥ", "b"}),
            (Pieces{"a", "", "", "", "🙂", "b", ""}));
}

TEST(TokenizerTest, StreamsInvalidBytesAsSoonAsTheyAreCertain) {
  const auto tokenizer = LoadGolden("llama3");
  EXPECT_EQ(Stream(*tokenizer, {"ð", "Ł", "a", "ÿ", "ð"}), (Pieces{"", "", "�a", "�", "", "�"}));
}

TEST(TokenizerTest, StreamsRunsOfByteTokensWhenTheyEnd) {
  const auto tokenizer = LoadGolden("llama2");
  EXPECT_EQ(Stream(*tokenizer, {"▁", "a", "<0xF0>", "<0x9F>", "<0x99>", "<0x82>", "b"}),
            (Pieces{"", "a", "", "", "", "", "🙂b", ""}));
  // One byte that does not fit makes the whole run invalid. This is known at once, and holds for
  // the rest of the run.
  EXPECT_EQ(Stream(*tokenizer, {"a", "<0x41>", "<0xFF>", "<0x42>", "b", "<0xC3>"}),
            (Pieces{"a", "", "��", "�", "b", "", "�"}));
}

TEST(TokenizerTest, ADetokenizerCanBeCopiedInTheMiddleOfACharacter) {
  const auto tokenizer = LoadGolden("llama3");
  StreamingDetokenizer stream(tokenizer.get(), true);
  EXPECT_EQ(stream.Push(IdOf(*tokenizer, "Ã")), "");
  StreamingDetokenizer copy = stream;
  EXPECT_EQ(copy.Finish(), "�");
  EXPECT_EQ(stream.Push(IdOf(*tokenizer, "©")), "é");
}

TEST(TokenizerTest, AnyThreadMayEncode) {
  const auto tokenizer = LoadGolden("qwen2");
  const std::string text = "Ångström's 12345 naïve e\u0301 \n\n <|im_start|> 人人生而自由";
  const auto want = tokenizer->Encode(text, true).value();
  std::vector<std::thread> threads;
  std::array<size_t, 4> wrong{};
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        if (tokenizer->Encode(text, true).value() != want) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const size_t count : wrong) EXPECT_EQ(count, 0u);
}

// The smallest tokenizer. It shows what the interface's own functions provide.
class LetterTokenizer : public Tokenizer {
 public:
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, bool) const override {
    return std::vector<int32_t>(text.begin(), text.end());
  }
  std::string Decode(std::span<const int32_t>, bool) const override { return {}; }
  size_t num_entries() const override { return 256; }
  std::string_view Entry(int32_t) const override { return {}; }
  bool IsSpecial(int32_t token_id) const override { return token_id == 0; }
  std::array<uint8_t, 32> Fingerprint() const override { return {}; }
  std::string TokenBytes(int32_t token_id) const override {
    return std::string(1, static_cast<char>(token_id));
  }
  bool StripsLeadingSpace() const override { return true; }
};

TEST(TokenizerTest, StreamsAnyTokenizerByItsTokenBytes) {
  const LetterTokenizer tokenizer;
  StreamingDetokenizer stream(&tokenizer, /*skip_special_tokens=*/true);
  EXPECT_EQ(stream.Push(0), "");
  EXPECT_EQ(stream.Push(' '), "");
  EXPECT_EQ(stream.Push(' '), " ");
  EXPECT_EQ(stream.Push(0xC3), "");
  EXPECT_EQ(stream.Push(0xA9), "é");
  EXPECT_EQ(stream.Push(0xC3), "");
  EXPECT_EQ(stream.Finish(), "�");
}

TEST(TokenizerTest, DecodesWithinALimitOrSaysThatTheTextIsLonger) {
  const auto tokenizer = LoadGolden("llama3");
  const std::vector<int32_t> ids = *tokenizer->Encode("Once upon a time, é", false);
  const std::string text = tokenizer->Decode(ids, true);
  EXPECT_EQ(*DecodeWithin(*tokenizer, ids, true, text.size()), text);
  for (const size_t limit : {text.size() - 1, size_t{0}}) {
    const auto refused = DecodeWithin(*tokenizer, ids, true, limit);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_NE(refused.status().message().find(std::to_string(limit) + " bytes"),
              absl::string_view::npos);
  }
  // The end may exceed the limit: a single first byte of a character becomes three bytes.
  const LetterTokenizer letters;
  EXPECT_FALSE(DecodeWithin(letters, std::vector<int32_t>{'a', 0xC3}, true, 3).ok());
  EXPECT_EQ(*DecodeWithin(letters, std::vector<int32_t>{'a', 0xC3}, true, 4), "a�");
}

}  // namespace
}  // namespace tandem
