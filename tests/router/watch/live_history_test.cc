#include "services/router/watch/live_history.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace tandem {
namespace {

LiveSample At(double time) {
  LiveSample sample;
  sample.time = time;
  sample.tested = static_cast<uint64_t>(10 * time);
  sample.tested_at = {static_cast<uint64_t>(6 * time), static_cast<uint64_t>(4 * time)};
  sample.accepted_at = {static_cast<uint64_t>(3 * time), static_cast<uint64_t>(time)};
  sample.gauges.kv_pages[Worker::kVerifier] = 100;
  sample.gauges.free_kv_pages[Worker::kVerifier] = 70;
  sample.pods = 3;
  sample.pods_ready = 2;
  return sample;
}

nlohmann::json Read(const LiveHistory& history, double since = 0) {
  return nlohmann::json::parse(history.Json(since));
}

TEST(LiveHistoryTest, BeforeTheFirstSampleThereIsNoState) {
  const LiveHistory history("1.2", "toy", 5);
  const nlohmann::json json = Read(history);
  EXPECT_EQ(json["model"], "toy");
  EXPECT_EQ(json["version"], "1.2");
  EXPECT_EQ(json["started"], 5);
  EXPECT_TRUE(json["samples"].empty());
  EXPECT_FALSE(json.contains("state"));
}

TEST(LiveHistoryTest, OnlyNewerSamplesAreSent) {
  LiveHistory history("1", "toy", 0);
  for (int i = 1; i <= 5; ++i) history.Add(At(i));
  history.AddEvent(2, LogLine::Level::kInfo, "early");
  history.AddEvent(4, LogLine::Level::kWarning, "late");
  const nlohmann::json json = Read(history, 3);
  ASSERT_EQ(json["samples"].size(), 2u);
  EXPECT_EQ(json["samples"][0]["t"], 4);
  EXPECT_EQ(json["samples"][1]["tested"], 50);
  ASSERT_EQ(json["events"].size(), 1u);
  EXPECT_EQ(json["events"][0]["text"], "late");
  EXPECT_EQ(json["events"][0]["level"], "warning");
  EXPECT_EQ(json["state"]["kv"]["used"], 30);
  EXPECT_EQ(json["state"]["pods"]["total"], 3);
  EXPECT_EQ(json["state"]["pods"]["ready"], 2);
  EXPECT_TRUE(Read(history, 5)["samples"].empty());
}

TEST(LiveHistoryTest, PositionsAreThoseOfTheLastMinute) {
  LiveHistory history("1", "toy", 0);
  for (int i = 1; i <= 200; ++i) history.Add(At(i));
  const nlohmann::json positions = Read(history)["positions"];
  EXPECT_EQ(positions["tested"], nlohmann::json({360, 240}));
  EXPECT_EQ(positions["accepted"], nlohmann::json({180, 60}));
}

TEST(LiveHistoryTest, DraftersAreThoseOfTheLastMinute) {
  LiveHistory history("1", "toy", 0);
  for (int i = 1; i <= 200; ++i) {
    LiveSample sample = At(i);
    const auto count = static_cast<uint64_t>(i);
    sample.drafters[{Drafter::kSuffix, ""}] = {4 * count, 3 * count, 3 * count};
    sample.drafters[{Drafter::kModel, ""}] = {7, 5, 6};  // long ago
    history.Add(sample);
  }
  const nlohmann::json drafters = Read(history)["drafters"];
  ASSERT_EQ(drafters.size(), 1u);
  EXPECT_EQ(drafters[0]["name"], "suffix");
  EXPECT_EQ(drafters[0]["drafted"], 240);
  EXPECT_EQ(drafters[0]["accepted"], 180);
}

TEST(LiveHistoryTest, GainsAreThoseOfTheLastMinuteAndHiddenWhereDraftsAreFew) {
  LiveHistory history("1", "toy", 0);
  LiveSample sample;
  for (int i = 1; i <= 200; ++i) {
    sample.time = i;
    DrafterCounts& suffix = sample.drafters[{Drafter::kSuffix, ""}];
    suffix.drafted += 4;
    // Twice as fast as plain decoding in the last minute, and half as fast before.
    suffix.gain.AddRound(i > 140 ? 3 : 1, i > 140 ? 1.5 : 2);
    DrafterCounts& eagle = sample.drafters[{Drafter::kEagle, ""}];
    eagle.drafted += 4;
    if (i % 4 == 0) eagle.gain.AddRound(4, 2);
    history.Add(sample);
  }
  const nlohmann::json drafters = Read(history)["drafters"];
  ASSERT_EQ(drafters.size(), 2u);
  EXPECT_EQ(drafters[0]["name"], "suffix");
  EXPECT_DOUBLE_EQ(drafters[0]["gain"]["ratio"], 2);
  EXPECT_NEAR(drafters[0]["gain"]["error"], 0, 1e-6);
  EXPECT_EQ(drafters[0]["gain"]["drafts"], 60);
  EXPECT_EQ(drafters[1]["name"], "eagle");
  EXPECT_TRUE(drafters[1]["gain"].is_null()) << "15 drafts in the minute";
}

TEST(LiveHistoryTest, HeadsAreNamed) {
  LiveHistory history("1", "toy", 0);
  LiveSample sample = At(1);
  history.Add(sample);
  EXPECT_EQ(Read(history)["state"]["heads"], nlohmann::json::array());
  sample = At(2);
  sample.heads = {{"tales-eagle", "eagle", 2}};
  history.Add(sample);
  const nlohmann::json want = {{"name", "tales-eagle"}, {"drafter", "eagle"}, {"pods", 2}};
  EXPECT_EQ(Read(history)["state"]["heads"], nlohmann::json::array({want}));
}

TEST(LiveHistoryTest, DraftModelsAreNamedWhereThereAreSeveral) {
  LiveHistory history("1", "toy", 0);
  const auto names_after = [&](int time, const std::vector<std::string>& models) {
    LiveSample sample = At(time);
    for (const std::string& model : models) {
      const auto count = static_cast<uint64_t>(time) * model.size();
      sample.drafters[{Drafter::kModel, model}] = {4 * count, 3 * count, 3 * count};
    }
    history.Add(sample);
    std::vector<std::string> names;
    const nlohmann::json json = Read(history);
    for (const nlohmann::json& drafter : json["drafters"]) {
      names.push_back(drafter["name"]);
      EXPECT_LE(drafter["drafted"], 40) << "of the last samples alone";
    }
    return names;
  };
  EXPECT_EQ(names_after(100, {"tiny"}), std::vector<std::string>());
  EXPECT_EQ(names_after(101, {"tiny"}), std::vector<std::string>{"model"});
  EXPECT_EQ(names_after(102, {"tiny", ""}), std::vector<std::string>{"tiny"});
}

TEST(LiveHistoryTest, AnotherDrafterBeginsAgainAtZero) {
  LiveHistory history("1", "toy", 0);
  for (int i = 100; i <= 110; ++i) history.Add(At(i));
  for (int i = 1; i <= 3; ++i) {
    LiveSample sample = At(i);
    sample.time = 110 + i;
    sample.draft_model = "other";
    history.Add(sample);
  }
  const nlohmann::json positions = Read(history)["positions"];
  EXPECT_EQ(positions["tested"], nlohmann::json({12, 8}));
  EXPECT_EQ(positions["accepted"], nlohmann::json({6, 2}));
}

TEST(LiveHistoryTest, TenMinutesAndFiftyEventsAreKept) {
  LiveHistory history("1", "toy", 0);
  for (int i = 1; i <= 1000; ++i) {
    history.Add(At(i));
    history.AddEvent(i, LogLine::Level::kInfo, std::to_string(i));
  }
  const nlohmann::json json = Read(history);
  EXPECT_EQ(json["samples"].size(), LiveHistory::kMaxSamples);
  EXPECT_EQ(json["samples"][0]["t"], 401);
  EXPECT_EQ(json["events"].size(), LiveHistory::kMaxEvents);
  EXPECT_EQ(json["events"][0]["text"], "951");
}

TEST(LiveHistoryTest, NamesMayBeAnything) {
  LiveHistory history("1", "to\"y\xff", 0);
  LiveSample sample = At(1);
  sample.draft_model = "\xc3(";
  history.Add(sample);
  EXPECT_EQ(Read(history)["model"], "to\"y\xef\xbf\xbd");
}

}  // namespace
}  // namespace tandem
