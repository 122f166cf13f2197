#include "common/tokenizer/text/pattern.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "common/tokenizer/text/pattern_syntax.h"

namespace tandem {
namespace {

// Returns the texts of the matches.
std::vector<std::string> Find(const std::string& regex, const std::string& text) {
  const auto pattern = Pattern::Regex(regex);
  EXPECT_TRUE(pattern.ok()) << pattern.status();
  if (!pattern.ok()) return {};
  const auto matches = pattern->FindAll(text);
  EXPECT_TRUE(matches.ok()) << matches.status();
  std::vector<std::string> found;
  for (const Pattern::Match& match : *matches) {
    found.push_back(text.substr(match.start, match.end - match.start));
  }
  return found;
}
using Texts = std::vector<std::string>;

std::string ErrorOf(const std::string& regex) {
  return std::string(Pattern::Regex(regex).status().message());
}

TEST(PatternTest, ReadsRepeatedIntervalsLikeOniguruma) {
  EXPECT_EQ(Find(R"(\p{N}{1,3}+)", "12345 6"), (Texts{"12345", "6"}));
  EXPECT_EQ(Find(R"((?:ab){2}+)", "ababab abab"), (Texts{"abab", "abab"}));
  EXPECT_EQ(Find("a{,2}b", "aaab b"), (Texts{"aab", "b"}));
  EXPECT_EQ(Find("a{b", "a{b"), (Texts{"a{b"}));
}

TEST(PatternTest, MatchesLinesAndWhiteSpaceLikeOniguruma) {
  EXPECT_EQ(Find("a$", "a\na"), (Texts{"a", "a"}));
  EXPECT_EQ(Find("^b", "b\nb"), (Texts{"b", "b"}));
  EXPECT_EQ(Find(R"(\s)", "\u180E\u0085\u3000"), (Texts{"\u0085", "\u3000"}));
  EXPECT_EQ(Find(R"([^\S\n])", " \nx\t"), (Texts{" ", "\t"}));
  EXPECT_EQ(Find(R"(\h+)", "xyzBEEF"), (Texts{"BEEF"}));
  EXPECT_EQ(Find(R"([\w-]+)", "a-b c"), (Texts{"a-b", "c"}));
  EXPECT_EQ(Find(R"(\p{Han})", "、漢"), (Texts{"漢"}));
  EXPECT_EQ(Find(R"(\p{^L})", "a1"), (Texts{"1"}));
}

TEST(PatternTest, SeesTheTextBeforeTheStartOfASearch) {
  EXPECT_EQ(Find(R"((?<=a)b|a)", "abb"), (Texts{"a", "b"}));
  EXPECT_EQ(Find(R"(\bx\b)", "x yx x"), (Texts{"x", "x"}));
}

TEST(PatternTest, GivesEmptyMatchesExceptDirectlyAfterAMatch) {
  EXPECT_EQ(Find("b*", "abbc"), (Texts{"", "bb", ""}));
  EXPECT_EQ(Find("x*", "é"), (Texts{"", ""}));
}

TEST(PatternTest, FindsMatchesFarApart) {
  const std::string gap(100'000, '-');
  EXPECT_EQ(Find("é[0-9]", gap + "é1" + gap + "éé2"), (Texts{"é1", "é2"}));
}

TEST(PatternTest, TakesALiteralAsItIs) {
  const Pattern pattern = Pattern::Literal("a.");
  const auto matches = pattern.FindAll("aba.a.");
  ASSERT_TRUE(matches.ok());
  ASSERT_EQ(matches->size(), 2u);
  EXPECT_EQ((*matches)[0].start, 2u);
}

TEST(PatternTest, RefusesConstructsThatTheTwoSyntaxesReadDifferently) {
  EXPECT_NE(ErrorOf("(?m)a.b").find("(?m)"), std::string::npos);
  EXPECT_NE(ErrorOf("(?x: a b)").find("(?x:"), std::string::npos);
  EXPECT_NE(ErrorOf("a(?i)b|c").find("(?i)"), std::string::npos);
  EXPECT_NE(ErrorOf(R"((a)\1)").find("\\1"), std::string::npos);
  EXPECT_NE(ErrorOf(R"(\X)").find("\\X"), std::string::npos);
  EXPECT_NE(ErrorOf("[a&&b]").find("class inside"), std::string::npos);
  EXPECT_NE(ErrorOf("[[:alpha:]]").find("class inside"), std::string::npos);
  EXPECT_NE(ErrorOf("(?i:ss)").find("ss"), std::string::npos);
  EXPECT_NE(ErrorOf(R"(\p{Alphabetic})").find("Alphabetic"), std::string::npos);
}

TEST(PatternTest, RefusesPatternsThatDoNotCompile) {
  for (const char* broken : {"(", ")", "[a", "a\\", "*a", "[b-a]", "\\p{Nope}", "(?<=a*)b", "[]"}) {
    EXPECT_FALSE(Pattern::Regex(broken).ok()) << broken;
  }
  EXPECT_FALSE(Pattern::Regex(std::string(20'000, 'a')).ok());
}

TEST(PatternTest, RefusesExponentialPatternsWhenItCompilesThem) {
  EXPECT_NE(ErrorOf("(a+)+$").find("exponentially"), std::string::npos);
  EXPECT_NE(ErrorOf(R"((\s*\s*)*z\d)").find("exponentially"), std::string::npos);
  EXPECT_NE(ErrorOf(R"((\w|\p{L})*[!?])").find("exponentially"), std::string::npos);
}

TEST(PatternTest, RefusesTextsThatTakeExponentialTime) {
  const auto pattern = Pattern::Regex("(x+x+)+y");
  ASSERT_TRUE(pattern.ok()) << pattern.status();
  const auto matches = pattern->FindAll(std::string(100, 'x') + "zy");
  EXPECT_EQ(matches.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PatternTest, RefusesLongTextsThatTakeQuadraticTime) {
  const auto pattern = Pattern::Regex("(?!z)[xy]*[uv]");
  ASSERT_TRUE(pattern.ok()) << pattern.status();
  const auto start = std::chrono::steady_clock::now();
  const auto matches = pattern->FindAll(std::string(2'000'000, 'x'));
  EXPECT_EQ(matches.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(PatternTest, RunsRepeatedGroupsOverLongTexts) {
  // Each repetition takes some stack of the just-in-time compiled code.
  EXPECT_EQ(Find(R"((?:\p{L}\p{M}?)+)", std::string(100'000, 'q')).size(), 1u);
}

}  // namespace
}  // namespace tandem
