#include "services/cli/commands/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace tandem::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// One second in which 10 blocks of 4 tokens were judged. 25 tokens were accepted, and 30 were
// tested.
nlohmann::json Second(int t) {
  return {{"t", 1000 + t},     {"drafts", 10 * t},
          {"drafted", 40 * t}, {"accepted", 25 * t},
          {"tested", 30 * t},  {"emitted", {25 * t, 6 * t, 4 * t, 5 * t}},
          {"rounds", 15 * t},  {"stages", {0.015 * t, 0.03 * t, 0.15 * t, 0.003 * t}},
          {"running", 3},      {"waiting", 2},
          {"length", 4},       {"gain", 1.7}};
}

nlohmann::json Answer(int first, int last, double started = 900) {
  nlohmann::json answer = {{"version", "1.2.3"},
                           {"model", "tales"},
                           {"started", started},
                           {"samples", nlohmann::json::array()},
                           {"events", nlohmann::json::array()},
                           {"state",
                            {{"slots", 32},
                             {"running", 3},
                             {"waiting", 2},
                             {"verifier", true},
                             {"drafter", true},
                             {"has_drafter", true},
                             {"draft_model", "tales-draft"},
                             {"drafter_problem", ""},
                             {"transport", "shm"},
                             {"heads", nlohmann::json::array()},
                             {"pods", {{"total", 1}, {"ready", 1}}},
                             {"kv", {{"total", 100}, {"used", 30}}},
                             {"draft_kv", {{"total", 50}, {"used", 5}}},
                             {"finished", 12},
                             {"preemptions", 1},
                             {"verifier_losses", 2},
                             {"drafter_losses", 3},
                             {"ring_errors", 4}}},
                           {"positions", {{"accepted", {80, 30, 0}}, {"tested", {100, 60, 0}}}},
                           {"drafters", nlohmann::json::array()}};
  for (int t = first; t <= last; ++t) answer["samples"].push_back(Second(t));
  return answer;
}

std::string Render(const TopView& view, int width = 80) {
  return view.Render(width, Palette(/*color=*/false));
}

TEST(TopViewTest, SaysWhatEachDrafterDraftedAndGained) {
  const auto with = [](nlohmann::json drafters) {
    nlohmann::json answer = Answer(0, 10);
    answer["drafters"] = std::move(drafters);
    TopView view;
    EXPECT_TRUE(view.Take(answer.dump()).ok());
    return Render(view);
  };
  const nlohmann::json model = {{"name", "model"},
                                {"drafted", 200},
                                {"accepted", 150},
                                {"tested", 180},
                                {"gain", {{"ratio", 1.625}, {"error", 0.041}, {"drafts", 50}}}};
  const nlohmann::json suffix = {
      {"name", "suffix"}, {"drafted", 40}, {"accepted", 10}, {"tested", 30}, {"gain", nullptr}};
  EXPECT_THAT(with(nlohmann::json::array()), Not(HasSubstr("drafters")));
  EXPECT_THAT(with({suffix}), HasSubstr("\ndrafters    suffix     25 % of 40 accepted, gain –\n"));
  EXPECT_THAT(with({model, suffix}),
              HasSubstr("\ndrafters    model      75 % of 200 accepted, gain 1.62× ± 0.04\n"
                        "            suffix     25 % of 40 accepted, gain –\n"));
}

TEST(TopViewTest, ShowsTheSumsOfTheLastSeconds) {
  TopView view;
  ASSERT_TRUE(view.Take(Answer(0, 30).dump()).ok());
  EXPECT_EQ(view.since(), 1030);
  const std::string text = Render(view);
  EXPECT_THAT(text, HasSubstr("tales drafted by tales-draft  Tandem 1.2.3, up for 2 min"));
  EXPECT_THAT(text, HasSubstr("● verifier   ● drafter   ● ring: shm\n"));
  // There are 40 tokens per second. 25 tokens were accepted, of 40 drafted and 30 tested ones. 40
  // tokens took 15 passes.
  EXPECT_THAT(text, HasSubstr("  tokens/s  expected  acceptance      α  tokens/pass     running"));
  EXPECT_THAT(
      text, HasSubstr("      40.0     1.70×        62 %   83 %         2.67     3 of 32        2"));
  EXPECT_THAT(
      text,
      HasSubstr("by source   accepted 25.0, bonus 4.00, recovered 6.00, plain 5.00 tokens/s\n"));
  EXPECT_THAT(text, HasSubstr("by position  1"));
  EXPECT_THAT(text, AllOf(HasSubstr("80 %"), HasSubstr("50 %")));
  EXPECT_THAT(
      text,
      HasSubstr("a round     13.20 ms: verify 10.00, draft 1.00, transfer 2.00, router 0.20"));
  EXPECT_THAT(text, AllOf(HasSubstr("30 of 100 pages"), HasSubstr("5 of 50 pages")));
  EXPECT_THAT(text, HasSubstr("since start 12 requests finished, 1200 tokens, 1200 drafted, 750 "
                              "accepted\n            1 preempted, 2 verifier losses, 3 drafter "
                              "losses, 4 ring errors\n"));
}

TEST(TopViewTest, LaterSamplesAreAppended) {
  TopView view;
  ASSERT_TRUE(view.Take(Answer(0, 3).dump()).ok());
  nlohmann::json later = Answer(4, 4);
  later["events"].push_back(
      {{"t", 1004}, {"level", "warning"}, {"text", "draft: session\nlost\x1b[2J"}});
  later["state"]["drafter"] = false;
  later["state"]["transport"] = "none";
  ASSERT_TRUE(view.Take(later.dump()).ok());
  EXPECT_EQ(view.since(), 1004);
  const std::string text = Render(view);
  EXPECT_THAT(text, HasSubstr("● drafter is gone"));
  EXPECT_THAT(text, HasSubstr("draft: session"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));  // a log line cannot move the cursor
}

TEST(TopViewTest, AWorkerThatNeverAttachedIsNotGone) {
  TopView view;
  nlohmann::json answer = Answer(0, 0);
  answer["state"].update({{"verifier", false},
                          {"drafter", false},
                          {"verifier_losses", 0},
                          {"drafter_losses", 0},
                          {"transport", "none"}});
  ASSERT_TRUE(view.Take(answer.dump()).ok());
  EXPECT_THAT(Render(view), HasSubstr("○ verifier starts   ○ drafter starts\n"));
  answer["state"]["drafter_problem"] = "it has another vocabulary";
  ASSERT_TRUE(view.Take(answer.dump()).ok());
  EXPECT_THAT(Render(view), HasSubstr("● no drafter: it has another vocabulary\n"));
  answer["state"]["drafter"] = true;
  ASSERT_TRUE(view.Take(answer.dump()).ok());
  EXPECT_THAT(Render(view),
              HasSubstr("● drafter   ● a drafter is missing: it has another vocabulary"));
}

TEST(TopViewTest, HeadsAreNamed) {
  TopView view;
  nlohmann::json answer = Answer(0, 3);
  answer["state"]["heads"] = {{{"name", "tales-eagle"}, {"drafter", "eagle"}, {"pods", 1}}};
  ASSERT_TRUE(view.Take(answer.dump()).ok());
  EXPECT_THAT(Render(view),
              HasSubstr("tales drafted by tales-draft with heads eagle (tales-eagle)  Tandem "));
  answer["state"]["heads"].push_back({{"name", ""}, {"drafter", "pass"}, {"pods", 1}});
  ASSERT_TRUE(view.Take(answer.dump()).ok());
  EXPECT_THAT(Render(view), HasSubstr(" with heads eagle (tales-eagle), pass  Tandem "));
}

TEST(TopViewTest, PodsAreCountedIfThereAreSeveral) {
  TopView view;
  nlohmann::json answer = Answer(0, 3);
  answer["state"]["pods"] = {{"total", 3}, {"ready", 2}};
  ASSERT_TRUE(view.Take(answer.dump()).ok());
  EXPECT_THAT(Render(view), HasSubstr("● ring: shm   ● pods: 2 of 3\n"));
}

TEST(TopViewTest, AnotherRouterBeginsAgain) {
  TopView view;
  ASSERT_TRUE(view.Take(Answer(0, 30).dump()).ok());
  ASSERT_TRUE(view.Take(Answer(31, 31, 1020).dump()).ok());
  EXPECT_EQ(view.since(), 1031);
  EXPECT_THAT(Render(view), HasSubstr("0.00         –"));  // one sample has no rate
}

TEST(TopViewTest, NothingIsKnownAtFirst) {
  TopView view;
  EXPECT_EQ(view.since(), 0);
  EXPECT_THAT(Render(view), HasSubstr("waiting"));
  nlohmann::json answer = Answer(1, 0);
  answer.erase("state");
  answer.erase("positions");
  ASSERT_TRUE(view.Take(answer.dump()).ok());
  EXPECT_THAT(Render(view), HasSubstr("waiting"));
}

TEST(TopViewTest, AnInvalidAnswerIsReported) {
  TopView view;
  for (const char* text : {"", "{", "[]", "null", "{\"started\": \"x\"}", "<html>"}) {
    EXPECT_EQ(view.Take(text).code(), absl::StatusCode::kInvalidArgument) << text;
  }
  nlohmann::json answer = Answer(0, 1);
  answer["samples"][0]["emitted"] = {1, 2};
  EXPECT_EQ(view.Take(answer.dump()).code(), absl::StatusCode::kInvalidArgument);
}

TEST(TopViewTest, AnEventThatComesTwiceIsShownOnce) {
  TopView view;
  nlohmann::json answer = Answer(0, 3);
  answer["events"].push_back({{"t", 1003.5}, {"level", "info"}, {"text", "ring opened"}});
  ASSERT_TRUE(view.Take(answer.dump()).ok());
  nlohmann::json next = Answer(4, 4);
  next["events"] = answer["events"];
  next["events"].push_back({{"t", 1003.9}, {"level", "info"}, {"text", "ring closed"}});
  ASSERT_TRUE(view.Take(next.dump()).ok());
  const std::string text = Render(view);
  EXPECT_EQ(text.find("ring opened"), text.rfind("ring opened"));
  EXPECT_THAT(text, AllOf(HasSubstr("ring opened"), HasSubstr("ring closed")));
}

TEST(TopViewTest, CurvesAndEventsFollowTheWidth) {
  TopView view;
  nlohmann::json answer = Answer(0, 300);
  answer["events"].push_back({{"t", 1003}, {"level", "info"}, {"text", std::string(300, 'x')}});
  ASSERT_TRUE(view.Take(answer.dump()).ok());
  const auto blocks = [&](int width) {
    const std::string text = Render(view, width);
    size_t count = 0;
    for (size_t at = 0; (at = text.find("█", at)) != std::string::npos; at += 3) ++count;
    return count;
  };
  EXPECT_EQ(blocks(120) - blocks(80), 40u);  // the rate is always the highest
  EXPECT_THAT(Render(view, 80), HasSubstr(" " + std::string(70, 'x') + "\n"));
}

}  // namespace
}  // namespace tandem::cli
