#include "services/router/request/stop_string_matcher.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace tandem::stop_string_matcher_test {
namespace {

struct Outcome {
  std::string text;
  std::optional<std::string> stop;
};

Outcome Match(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopStringMatcher matcher(stops);
  Outcome outcome;
  for (const std::string& piece : pieces) {
    StopStringMatcher::Step step = matcher.Push(piece, true);
    outcome.text += step.text;
    if (step.stop_string.has_value()) {
      outcome.stop = step.stop_string;
      return outcome;
    }
  }
  outcome.text += matcher.Finish();
  return outcome;
}

TEST(StopStringMatcherTest, PassesTextThroughWithoutStops) {
  const Outcome outcome = Match({}, {"ab", "c"});
  EXPECT_EQ(outcome.text, "abc");
  EXPECT_FALSE(outcome.stop.has_value());
}

TEST(StopStringMatcherTest, CutsBeforeAMatchThatSpansPieces) {
  const Outcome outcome = Match({"stop"}, {"one s", "t", "op two"});
  EXPECT_EQ(outcome.text, "one ");
  EXPECT_EQ(outcome.stop, "stop");
}

TEST(StopStringMatcherTest, WithholdsOnlyTextThatMayBecomeAMatch) {
  StopStringMatcher matcher({"stop", "top!"});
  EXPECT_EQ(matcher.Push("a sto", true).text, "a ");
  EXPECT_EQ(matcher.Push("p", true).stop_string, "stop");

  StopStringMatcher other({"stop", "top!"});
  EXPECT_EQ(other.Push("a sto", true).text, "a ");
  EXPECT_EQ(other.Push("re", true).text, "store");
  EXPECT_EQ(other.Push("s", true).text, "");
  EXPECT_EQ(other.Finish(), "s");
}

TEST(StopStringMatcherTest, FallsBackToAShorterBeginning) {
  // After "aab" fails on the third 'a', "aa" may still begin a match.
  StopStringMatcher matcher({"aab"});
  EXPECT_EQ(matcher.Push("aa", true).text, "");
  EXPECT_EQ(matcher.Push("a", true).text, "a");
  const StopStringMatcher::Step step = matcher.Push("b", true);
  EXPECT_EQ(step.text, "");
  EXPECT_EQ(step.stop_string, "aab");
}

TEST(StopStringMatcherTest, TheMatchThatEndsFirstWinsAndThenTheLongest) {
  EXPECT_EQ(Match({"abcde", "bc"}, {"abcde"}).stop, "bc");
  EXPECT_EQ(Match({"c", "abc"}, {"xabc"}).stop, "abc");
  EXPECT_EQ(Match({"c", "abc"}, {"xabc"}).text, "x");
}

TEST(StopStringMatcherTest, MatchesThatMayNotStopAreOutput) {
  StopStringMatcher matcher({"ab"});
  std::string text = matcher.Push("ab", false).text;
  text += matcher.Push("a", false).text;
  EXPECT_EQ(text, "ab");
  const StopStringMatcher::Step step = matcher.Push("b", true);
  EXPECT_EQ(step.text, "");
  EXPECT_EQ(step.stop_string, "ab");
}

TEST(StopStringMatcherTest, AMatchThatOverlapsOneThatDidNotCountIsFound) {
  StopStringMatcher matcher({"aa"});
  std::string text = matcher.Push("aa", false).text;
  EXPECT_EQ(matcher.Push("a", true).stop_string, "aa");
  EXPECT_EQ(text, "a");
}

TEST(StopStringMatcherTest, HoldsWholeCharacters) {
  StopStringMatcher matcher({"\xC3\xA9t\xC3\xA9"});  // "été"
  EXPECT_EQ(matcher.Push("\xC3\xA8", true).text, "\xC3\xA8");
  EXPECT_EQ(matcher.Push("\xC3\xA9", true).text, "");
  EXPECT_EQ(matcher.Push("x", true).text, "\xC3\xA9x");
}

TEST(StopStringMatcherTest, TheOutcomeDoesNotDependOnHowTheTextIsCut) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string text(30, ' ');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    std::vector<std::string> stops;
    for (int i = 0; i < 3; ++i) {
      std::string stop(2 + random() % 6, ' ');
      for (char& c : stop) c = static_cast<char>('a' + random() % 2);
      stops.push_back(stop);
    }
    // This is the plain definition: the first end of any match, and the longest match that ends
    // there.
    std::string want = text;
    std::optional<std::string> want_stop;
    for (size_t end = 1; end <= text.size() && !want_stop.has_value(); ++end) {
      for (const std::string& stop : stops) {
        if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0 &&
            (!want_stop.has_value() || want_stop->size() < stop.size())) {
          want_stop = stop;
          want = text.substr(0, end - stop.size());
        }
      }
    }
    std::vector<std::string> pieces;
    for (size_t begin = 0; begin < text.size();) {
      const size_t size = 1 + random() % 5;
      pieces.push_back(text.substr(begin, size));
      begin += size;
    }
    const Outcome outcome = Match(stops, pieces);
    ASSERT_EQ(outcome.text, want) << text;
    ASSERT_EQ(outcome.stop, want_stop) << text;
  }
}

}  // namespace
}  // namespace tandem::stop_string_matcher_test
