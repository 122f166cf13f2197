#include "services/cli/stream/text_attribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace tandem::cli {

bool operator==(const TextSpan& a, const TextSpan& b) {
  return a.text == b.text && a.source == b.source;
}
void PrintTo(const TextSpan& span, std::ostream* out) {
  *out << "\"" << span.text << "\" " << v1::TokenSource_Name(span.source);
}

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr v1::TokenSource kAccepted = v1::TOKEN_SOURCE_ACCEPTED;
constexpr v1::TokenSource kRecovered = v1::TOKEN_SOURCE_RECOVERED;
constexpr v1::TokenSource kBonus = v1::TOKEN_SOURCE_BONUS;
constexpr v1::TokenSource kPlain = v1::TOKEN_SOURCE_PLAIN;
constexpr char kPartial[] = "\xEF\xBF\xBD";

struct Token {
  int32_t id;
  v1::TokenSource source;
};

v1::GenerateResponse Message(const std::string& text, const std::vector<Token>& tokens) {
  v1::GenerateResponse message;
  message.set_text(text);
  for (const Token& token : tokens) {
    message.add_token_ids(token.id);
    message.add_sources(token.source);
  }
  return message;
}

class TextAttributionTest : public ::testing::Test {
 protected:
  TextAttribution Make(bool may_be_held_back = false) {
    return {[this](int32_t id) {
              ++lookups_;
              return texts_.at(id);
            },
            may_be_held_back};
  }

  std::map<int32_t, std::string> texts_ = {{1, "the"},     {2, " king"},   {3, " and"}, {4, " a"},
                                           {10, kPartial}, {11, kPartial}, {20, ""}};
  int lookups_ = 0;
};

TEST_F(TextAttributionTest, OneTokenOwnsItsMessage) {
  TextAttribution attribution = Make();
  EXPECT_THAT(attribution.Add(Message(" king", {{2, kPlain}})),
              ElementsAre(TextSpan{" king", kPlain}));
  EXPECT_EQ(lookups_, 0);
}

TEST_F(TextAttributionTest, ARoundIsCutAtItsTokens) {
  TextAttribution attribution = Make();
  EXPECT_THAT(
      attribution.Add(Message("the king and", {{1, kAccepted}, {2, kAccepted}, {3, kRecovered}})),
      ElementsAre(TextSpan{"the king", kAccepted}, TextSpan{" and", kRecovered}));
}

TEST_F(TextAttributionTest, ATokenThatLooksLikeTheStartOfAnotherKeepsItsSource) {
  TextAttribution attribution = Make();
  EXPECT_THAT(attribution.Add(Message(" a and", {{4, kAccepted}, {3, kBonus}})),
              ElementsAre(TextSpan{" a", kAccepted}, TextSpan{" and", kBonus}));
}

TEST_F(TextAttributionTest, ACharacterOfSeveralTokensComesWithTheLastOne) {
  TextAttribution attribution = Make();
  EXPECT_THAT(attribution.Add(Message("", {{10, kAccepted}})), IsEmpty());
  EXPECT_THAT(attribution.Add(Message("ä king", {{11, kBonus}, {2, kAccepted}})),
              ElementsAre(TextSpan{"ä", kBonus}, TextSpan{" king", kAccepted}));
}

TEST_F(TextAttributionTest, TextHeldBackForAStopStringGoesToItsToken) {
  TextAttribution attribution = Make(/*may_be_held_back=*/true);
  EXPECT_THAT(attribution.Add(Message("the ki", {{1, kAccepted}, {2, kBonus}})),
              ElementsAre(TextSpan{"the", kAccepted}, TextSpan{" ki", kBonus}));
  EXPECT_THAT(attribution.Add(Message("ng and", {{3, kRecovered}})),
              ElementsAre(TextSpan{"ng", kBonus}, TextSpan{" and", kRecovered}));
}

TEST_F(TextAttributionTest, ASpaceThatATokenLosesWhenDecodedAloneIsItsOwn) {
  TextAttribution attribution = Make();
  EXPECT_THAT(attribution.Add(Message(" the king", {{1, kAccepted}, {2, kBonus}})),
              ElementsAre(TextSpan{" the", kAccepted}, TextSpan{" king", kBonus}));
}

TEST_F(TextAttributionTest, SpecialTokensHaveNoText) {
  TextAttribution attribution = Make();
  EXPECT_THAT(attribution.Add(Message("the king", {{1, kAccepted}, {20, kPlain}, {2, kBonus}})),
              ElementsAre(TextSpan{"the", kAccepted}, TextSpan{" king", kBonus}));
}

TEST_F(TextAttributionTest, TextThatMatchesNoTokenIsNotLost) {
  TextAttribution attribution = Make();
  EXPECT_THAT(attribution.Add(Message("something", {{1, kAccepted}, {2, kBonus}})),
              ElementsAre(TextSpan{"something", kBonus}));
  EXPECT_THAT(attribution.Add(Message(" else", {})), ElementsAre(TextSpan{" else", kBonus}));
}

}  // namespace
}  // namespace tandem::cli
