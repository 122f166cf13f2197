#include "services/cli/commands/race.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace tandem::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RaceLane Lane(const std::string& title, double seconds_per_token,
              const std::vector<std::string>& tokens) {
  RaceLane lane{.title = title, .steps = {}};
  for (const std::string& token : tokens) {
    lane.steps.push_back({.seconds = seconds_per_token * (1.0 + lane.steps.size()),
                          .text = token,
                          .source = v1::TOKEN_SOURCE_PLAIN,
                          .num_tokens = 1});
  }
  return lane;
}

std::vector<std::string> LinesOf(const std::string& frame) {
  std::istringstream stream(frame);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

const std::vector<std::string> kTokens = {"one ", "two ", "three ", "four"};

TEST(RaceTest, AFrameShowsWhatHadArrivedAtItsTime) {
  const Race race(Lane("plain", 0.2, kTokens), Lane("drafted", 0.1, kTokens), 100, 6,
                  Palette(false));
  EXPECT_DOUBLE_EQ(race.seconds(), 0.8);
  const std::vector<std::string> lines = LinesOf(race.Frame(0.41));
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_THAT(lines[0], HasSubstr("plain"));
  EXPECT_THAT(lines[0], HasSubstr("drafted"));
  EXPECT_THAT(lines[1], HasSubstr("2 tokens in 410 ms, 5 tokens/s"));
  EXPECT_THAT(lines[1], HasSubstr("done: 4 tokens in 400 ms, 10 tokens/s"));
  EXPECT_THAT(lines[2], HasSubstr("one two  "));
  EXPECT_THAT(lines[2], HasSubstr("│ one two three four"));
}

TEST(RaceTest, NothingIsShownBeforeTheFirstToken) {
  const Race race(Lane("plain", 0.2, kTokens), Lane("drafted", 0.1, kTokens), 60, 6,
                  Palette(false));
  EXPECT_THAT(race.Frame(0), Not(HasSubstr("one")));
  EXPECT_THAT(race.Frame(0), HasSubstr("0 tokens in 0 ms"));
}

TEST(RaceTest, LongTextScrollsAndLinesBreakAtTheEdge) {
  std::vector<std::string> tokens;
  for (int i = 0; i < 100; ++i) tokens.push_back("w" + std::to_string(i) + " ");
  const Race race(Lane("plain", 0.01, tokens), Lane("drafted", 0.01, {"a\n", "b"}), 43, 8,
                  Palette(false));
  const std::string frame = race.Frame(10);
  EXPECT_THAT(frame, HasSubstr("w99"));
  EXPECT_THAT(frame, Not(HasSubstr("w1 ")));
  const std::vector<std::string> lines = LinesOf(frame);
  ASSERT_EQ(lines.size(), 8u);
  for (const std::string& line : lines) {
    EXPECT_EQ(line.size(), 20u + 5u + 20u) << line;  // the bar between the lanes takes three bytes
  }
  EXPECT_THAT(lines[2], HasSubstr("│ a "));
  EXPECT_THAT(lines[3], HasSubstr("│ b "));
}

TEST(RaceTest, ACharacterOfSeveralBytesTakesOneColumn) {
  const Race race(Lane("plain", 0.1, {"äöü"}), Lane("drafted", 0.1, {"abc"}), 43, 6,
                  Palette(false));
  const std::vector<std::string> lines = LinesOf(race.Frame(1));
  EXPECT_EQ(lines[2], "äöü" + std::string(17, ' ') + " │ abc" + std::string(17, ' '));
}

TEST(RaceTest, TokensHaveTheColorOfTheirSource) {
  RaceLane lane = Lane("drafted", 0.1, {"a", "b"});
  lane.steps[1].source = v1::TOKEN_SOURCE_ACCEPTED;
  const Palette palette(true);
  const Race race(Lane("plain", 0.1, {"c"}), lane, 43, 6, palette);
  EXPECT_THAT(race.Frame(1), HasSubstr("a" + palette.Source(v1::TOKEN_SOURCE_ACCEPTED, "b")));
}

}  // namespace
}  // namespace tandem::cli
