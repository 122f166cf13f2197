#include "services/cli/commands/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

namespace tandem::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Nine tokens: the first from prefill, then a round of four (three accepted, one bonus), a round of
// three (two accepted, one recovered), and a plain round.
v1::GenerateResponse Response() {
  v1::GenerateResponse response;
  for (int source : {4, 1, 1, 1, 3, 1, 1, 2, 4}) {
    response.add_token_ids(source);
    response.add_sources(static_cast<v1::TokenSource>(source));
  }
  v1::Completion* completion = response.mutable_completion();
  completion->set_finish_reason(v1::FINISH_REASON_LENGTH);
  completion->set_seed(77);
  completion->set_lossless(true);
  completion->mutable_usage()->set_prompt_tokens(12);
  completion->mutable_usage()->set_completion_tokens(9);
  v1::SpeculationStats* stats = completion->mutable_speculation();
  stats->set_num_drafts(2);
  stats->set_reproducible(true);
  stats->set_num_plain_rounds(2);
  stats->set_num_draft_tokens(6);
  stats->set_num_accepted_tokens(5);
  stats->set_num_tested_tokens(6);
  for (int accepted : {2, 2, 1}) stats->add_num_accepted_tokens_per_position(accepted);
  for (int tested : {2, 2, 2}) stats->add_num_tested_tokens_per_position(tested);
  v1::Timings* timings = completion->mutable_timings();
  timings->set_time_to_first_token_seconds(0.0125);
  timings->set_decode_seconds(0.01);
  timings->set_draft_seconds(0.002);
  timings->set_transfer_seconds(0.001);
  timings->set_verify_seconds(0.006);
  timings->set_router_seconds(0.001);
  return response;
}

TEST(RunTotalsTest, RatesFollowFromTheSums) {
  RunTotals totals;
  totals.Add(Response().completion());
  totals.Add(Response().completion());
  EXPECT_EQ(totals.tokens(), 18);
  EXPECT_EQ(totals.draft_rounds(), 4);
  EXPECT_EQ(totals.plain_rounds(), 2);
  EXPECT_DOUBLE_EQ(totals.TokensPerSecond(), 800);
  EXPECT_DOUBLE_EQ(totals.TokensPerPass(), 16.0 / 6);
  EXPECT_DOUBLE_EQ(totals.AcceptanceRate(), 10.0 / 12);
  EXPECT_THAT(totals.AlphaPerPosition(), ::testing::ElementsAre(1, 1, 0.5));
  EXPECT_DOUBLE_EQ(totals.seconds().Total(), 0.02);
}

TEST(RunTotalsTest, WithoutCountsRatesAreZeroAndNotNan) {
  const RunTotals totals;
  EXPECT_EQ(totals.TokensPerSecond(), 0);
  EXPECT_EQ(totals.TokensPerPass(), 0);
  EXPECT_EQ(totals.Alpha(), 0);
}

TEST(SummaryTest, SaysWhatADrafterGainedUnlessItDraftedLittle) {
  v1::GenerateResponse response = Response();
  v1::DrafterStats& suffix = *response.mutable_completion()->mutable_speculation()->add_drafters();
  suffix.set_name("suffix");
  suffix.set_num_drafts(29);
  suffix.set_num_round_tokens(90);
  suffix.set_num_plain_tokens(45);
  EXPECT_THAT(RenderSummary(response, true, Palette(false)), Not(HasSubstr("gain")));
  suffix.set_num_drafts(30);
  EXPECT_THAT(RenderSummary(response, true, Palette(false)),
              HasSubstr("accepted in 30 drafts, gain 2.00×\n"));
  suffix.set_num_plain_tokens(0);
  EXPECT_THAT(RenderSummary(response, true, Palette(false)), Not(HasSubstr("gain")));
}

TEST(SummaryTest, ShowsEveryNumber) {
  const std::string text = RenderSummary(Response(), true, Palette(false));
  for (const char* part :
       {"9 after a prompt of 12", "length limit reached", "seed 77",
        "5 accepted, 1 recovered, 1 bonus, 2 plain", "3 after prefill", "2.67 tokens per pass",
        "83 % of drafted (5 of 6)", "α 0.83 of tested", " 3 ", "0.50 of 2", "12.5 ms",
        "800 tokens/s", "draft 20 %, transfer 10 %, verify 60 %, router 10 %"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr("lenience")));
}

TEST(SummaryTest, PositionsThatWereNeverTestedAreLeftOut) {
  v1::GenerateResponse response = Response();
  v1::SpeculationStats* stats = response.mutable_completion()->mutable_speculation();
  stats->add_num_accepted_tokens_per_position(0);
  stats->add_num_tested_tokens_per_position(0);
  const std::string text = RenderSummary(response, true, Palette(false));
  EXPECT_THAT(text, HasSubstr("0.50 of 2"));
  EXPECT_THAT(text, Not(HasSubstr("of 0\n")));
}

TEST(SummaryTest, AComparisonShowsTheSpeedInstead) {
  const std::string text = RenderSummary(Response(), false, Palette(false));
  EXPECT_THAT(text, HasSubstr("first token after 12.5 ms\n"));
  EXPECT_THAT(text, Not(HasSubstr("tokens/s")));
}

TEST(SummaryTest, SaysWhenTheOutputMayDiffer) {
  v1::GenerateResponse response = Response();
  response.mutable_completion()->set_lossless(false);
  EXPECT_THAT(RenderSummary(response, true, Palette(false)), HasSubstr("lenience"));
}

TEST(SummaryTest, AStopIsNamed) {
  v1::GenerateResponse response = Response();
  response.mutable_completion()->set_stop_token_id(4095);
  EXPECT_THAT(RenderSummary(response, true, Palette(false)), HasSubstr("stopped at token 4095"));
}

TEST(SummaryTest, RowsWithoutSamplesAreNotShown) {
  v1::GenerateResponse response;
  response.add_token_ids(4);
  response.add_sources(v1::TOKEN_SOURCE_PLAIN);
  response.mutable_completion()->mutable_usage()->set_completion_tokens(1);
  response.mutable_completion()->mutable_timings()->set_time_to_first_token_seconds(0.001);
  const std::string text = RenderSummary(response, true, Palette(false));
  EXPECT_THAT(text, HasSubstr("1 plain"));
  EXPECT_THAT(text, HasSubstr("first token after"));
  for (const char* absent : {"accepted", "recovered", "bonus", "acceptance", "tokens/s", "time"}) {
    EXPECT_THAT(text, Not(HasSubstr(absent == std::string("time") ? "  time" : absent)));
  }
}

TEST(SummaryTest, WarningsAreShown) {
  v1::GenerateResponse response = Response();
  response.mutable_completion()->add_warnings("prompt: begins twice");
  EXPECT_THAT(RenderSummary(response, true, Palette(false)), HasSubstr("prompt: begins twice"));
}

TEST(PaletteTest, ColorsTellSourcesApart) {
  const Palette palette(true);
  EXPECT_EQ(palette.Source(v1::TOKEN_SOURCE_ACCEPTED, "a"), "\x1b[32ma\x1b[0m");
  EXPECT_EQ(palette.Source(v1::TOKEN_SOURCE_RECOVERED, "a"), "\x1b[33ma\x1b[0m");
  EXPECT_EQ(palette.Source(v1::TOKEN_SOURCE_BONUS, "a"), "\x1b[36ma\x1b[0m");
  EXPECT_EQ(palette.Source(v1::TOKEN_SOURCE_PLAIN, "a"), "a");
  EXPECT_EQ(Palette(false).Source(v1::TOKEN_SOURCE_ACCEPTED, "a"), "a");
  EXPECT_EQ(Palette(false).Legend(), "");
}

TEST(PaletteTest, BarsFillInEighths) {
  const Palette palette(false);
  EXPECT_EQ(palette.Bar(0, 4), "    ");
  EXPECT_EQ(palette.Bar(0.5, 4), "██  ");
  EXPECT_EQ(palette.Bar(1, 4), "████");
  EXPECT_EQ(palette.Bar(1.0 / 32, 4), "▏   ");
  EXPECT_EQ(palette.Bar(7, 2), "██");
}

TEST(PaletteTest, ColorsAreForTerminals) {
  unsetenv("NO_COLOR");
  setenv("TERM", "xterm", 1);
  EXPECT_TRUE(WantsColor(ColorMode::kAuto, true));
  EXPECT_FALSE(WantsColor(ColorMode::kAuto, false));
  EXPECT_TRUE(WantsColor(ColorMode::kAlways, false));
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(WantsColor(ColorMode::kAuto, true));
  EXPECT_TRUE(WantsColor(ColorMode::kAlways, true));
  EXPECT_FALSE(WantsColor(ColorMode::kNever, true));
  unsetenv("NO_COLOR");
}

TEST(PaletteTest, ControlCharactersCannotReachATerminal) {
  EXPECT_EQ(VisibleText("a\x1b[2J\tb\nc\x7f"), "a␛[2J\tb\nc␡");
  EXPECT_EQ(VisibleText("\xC2\x9B"
                        "31m ä"),
            "\xEF\xBF\xBD"
            "31m ä");
}

TEST(PaletteTest, DurationsUseTheUnitThatIsEasiestToRead) {
  EXPECT_EQ(FormatSeconds(0.00085), "850 µs");
  EXPECT_EQ(FormatSeconds(0.0123), "12.3 ms");
  EXPECT_EQ(FormatSeconds(1.239), "1.24 s");
}

}  // namespace
}  // namespace tandem::cli
