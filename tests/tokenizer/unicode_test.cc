#include "common/tokenizer/text/unicode.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem {
namespace {

std::string Repair(const std::string& bytes) {
  std::string incomplete;
  std::string text;
  AppendRepairedUtf8(bytes, incomplete, text);
  if (!incomplete.empty()) text += kReplacementCharacter;
  return text;
}

TEST(UnicodeTest, ReplacesEachMaximalSubpartByOneReplacementCharacter) {
  // The example of table 3-8 of the Unicode Standard 15.0, and other examples of its section 3.9.
  EXPECT_EQ(Repair("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), "��������A");
  EXPECT_EQ(Repair("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), "��������A");
  EXPECT_EQ(Repair("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), "�����A��B");
  EXPECT_EQ(Repair("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "����A");
}

TEST(UnicodeTest, KeepsAnIncompleteCharacterUntilItIsCertain) {
  std::string incomplete;
  std::string text;
  AppendRepairedUtf8("a\xF0\x9F", incomplete, text);
  EXPECT_EQ(text, "a");
  AppendRepairedUtf8("\x99", incomplete, text);
  EXPECT_EQ(text, "a");
  AppendRepairedUtf8("\x82", incomplete, text);
  EXPECT_EQ(text, "a🙂");
  AppendRepairedUtf8("\xF0\x9F\x99", incomplete, text);
  AppendRepairedUtf8("b", incomplete, text);
  EXPECT_EQ(text, "a🙂�b");
  EXPECT_EQ(incomplete, "");
}

TEST(UnicodeTest, FindsTheFirstInvalidByte) {
  EXPECT_EQ(FindInvalidUtf8("añ🙂"), std::nullopt);
  EXPECT_EQ(FindInvalidUtf8("a\xF0\x9F\x99"), 1u);
  EXPECT_EQ(FindInvalidUtf8("ab\xFF"), 2u);
}

TEST(UnicodeTest, WalksCharactersInBothDirections) {
  const std::string text = "aé가🙂";
  size_t position = 0;
  std::vector<char32_t> forward;
  while (position < text.size()) forward.push_back(NextCharacter(text, position));
  EXPECT_EQ(forward, (std::vector<char32_t>{U'a', U'é', U'가', U'🙂'}));
  std::vector<char32_t> backward;
  while (position > 0) backward.push_back(PreviousCharacter(text, position));
  EXPECT_EQ(backward, (std::vector<char32_t>{U'🙂', U'가', U'é', U'a'}));
}

TEST(UnicodeTest, NormalizesToTheFourForms) {
  EXPECT_EQ(NormalizeUnicode("e\u0301\uFB01", NormalizationForm::kNfc), "\u00E9\uFB01");
  EXPECT_EQ(NormalizeUnicode("\u00E9\uFB01", NormalizationForm::kNfd), "e\u0301\uFB01");
  EXPECT_EQ(NormalizeUnicode("e\u0301\uFB01", NormalizationForm::kNfkc), "\u00E9fi");
  EXPECT_EQ(NormalizeUnicode("\u00E9\uFB01", NormalizationForm::kNfkd), "e\u0301fi");
  EXPECT_EQ(NormalizeUnicode("\u1112\u1161\u11AB", NormalizationForm::kNfc), "\uD55C");
}

TEST(UnicodeTest, OrdersAMillionMarksWithoutQuadraticTime) {
  std::string marks = "a";
  for (int i = 0; i < 500'000; ++i)
    marks += "\u0301\u0323";  // classes 230 and 220, all of them out of order
  const std::string ordered = NormalizeUnicode(marks, NormalizationForm::kNfd);
  std::string want = "a";
  for (int i = 0; i < 500'000; ++i) want += "\u0323";
  for (int i = 0; i < 500'000; ++i) want += "\u0301";
  EXPECT_TRUE(ordered == want);
}

TEST(UnicodeTest, LowercasesWithoutContext) { EXPECT_EQ(LowercaseUnicode("ÀΣİ ǅ"), "àσi\u0307 ǆ"); }

TEST(UnicodeTest, CountsWhiteSpaceAtBothEnds) {
  EXPECT_EQ(LeadingWhiteSpace(" \u3000\u0085x "), 6u);
  EXPECT_EQ(TrailingWhiteSpace("x\u2028 \n"), 5u);
  EXPECT_EQ(TrailingWhiteSpace("\u200B"), 0u);  // no longer White_Space
}

}  // namespace
}  // namespace tandem
