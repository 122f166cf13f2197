#include "common/log/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log/log_line.h"
#include "common/peer_text.h"

namespace tandem {
namespace {

using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class LogTest : public ::testing::Test {
 protected:
  void LogAs(const std::string& format, const std::string& level) {
    SetUpLog({.process = "router", .level = level, .format = format},
             std::make_shared<spdlog::sinks::ostream_sink_mt>(out_));
  }
  std::vector<std::string> Lines() const {
    std::vector<std::string> lines;
    std::istringstream text(out_.str());
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
  }

  std::ostringstream out_;
};

TEST_F(LogTest, JsonLinesHaveTimeLevelProcessMessageAndFields) {
  LogAs("json", "info");
  LogWith(spdlog::level::warn,
          LogFields()
              .Add("request_id", "r1")
              .Add("slot", 3)
              .Add("epoch", std::optional<uint32_t>(7))
              .Add("session", std::optional<uint64_t>())
              .Add("seconds", 0.25),
          "lost");
  ASSERT_EQ(Lines().size(), 1u);
  const nlohmann::json line = nlohmann::json::parse(Lines()[0]);
  EXPECT_THAT(line["time"].get<std::string>(),
              MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\\.[0-9]{6}Z"));
  EXPECT_EQ(line["level"], "warning");
  EXPECT_EQ(line["process"], "router");
  EXPECT_EQ(line["message"], "lost");
  EXPECT_EQ(line["request_id"], "r1");
  EXPECT_EQ(line["slot"], 3);
  EXPECT_EQ(line["epoch"], 7);
  EXPECT_EQ(line["seconds"], 0.25);
  EXPECT_FALSE(line.contains("session"));
  EXPECT_EQ(line.size(), 8u);
}

TEST_F(LogTest, AnyBytesMakeOneValidJsonLine) {
  LogAs("json", "info");
  const std::string bytes = "a\nb\"c\\\x01\xff{}\xc3";
  LogWith(spdlog::level::info, LogFields().Add("request_id", bytes), bytes);
  spdlog::info("{}", bytes);
  ASSERT_EQ(Lines().size(), 2u);
  for (const std::string& text : Lines()) {
    EXPECT_TRUE(IsJsonObject(text)) << text;
    EXPECT_THAT(nlohmann::json::parse(text)["message"].get<std::string>(),
                testing::StartsWith("a\nb\"c\\\x01"));
  }
}

TEST_F(LogTest, TextLinesNameTheFieldsAtTheEnd) {
  LogAs("text", "info");
  LogWith(spdlog::level::info, LogFields().Add("request_id", "r 1").Add("slot", 3), "started");
  spdlog::info("plain");
  ASSERT_EQ(Lines().size(), 2u);
  EXPECT_THAT(Lines()[0], EndsWith("Z info router: started request_id=\"r 1\" slot=3"));
  EXPECT_THAT(Lines()[1], EndsWith("info router: plain")) << "fields are of one line";
}

TEST_F(LogTest, AnyBytesMakeOneTextLine) {
  LogAs("text", "info");
  const std::string forged = "x\n2026-01-01T00:00:00.000000Z info router: forged\r\x1b[2J\x7f\tend";
  spdlog::info("{}", forged);
  LogWith(spdlog::level::info, LogFields().Add("detail", forged), "caf\u00e9");
  ASSERT_EQ(Lines().size(), 2u);
  EXPECT_THAT(Lines()[0], EndsWith("info router: x\\n2026-01-01T00:00:00.000000Z info router: "
                                   "forged\\x0d\\x1b[2J\\x7f\\x09end"));
  EXPECT_THAT(Lines()[1], HasSubstr("info router: caf\u00e9 detail=\"x\\n2026"));
  for (const std::string& line : Lines()) {
    for (const char c : line) {
      const auto byte = static_cast<unsigned char>(c);
      EXPECT_TRUE(byte >= 0x20 && byte != 0x7f) << line;
    }
  }
}

TEST_F(LogTest, TheLevelCanBeAskedFor) {
  LogAs("text", "warn");
  EXPECT_FALSE(Logs(spdlog::level::info));
  EXPECT_TRUE(Logs(spdlog::level::warn));
  EXPECT_TRUE(Logs(spdlog::level::err));
}

TEST_F(LogTest, LinesUnderTheLevelAreLeftOut) {
  LogAs("text", "warn");
  spdlog::info("too little");
  LogWith(spdlog::level::info, LogFields().Add("slot", 1), "too little");
  spdlog::error("enough");
  ASSERT_EQ(Lines().size(), 1u);
  EXPECT_THAT(Lines()[0], HasSubstr("enough"));
}

TEST_F(LogTest, FieldsStayWithTheirLineInManyThreads) {
  LogAs("json", "info");
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id) {
    threads.emplace_back([id] {
      for (int i = 0; i < 200; ++i) {
        LogWith(spdlog::level::info, LogFields().Add("slot", id), std::to_string(id));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(Lines().size(), 800u);
  for (const std::string& text : Lines()) {
    const nlohmann::json line = nlohmann::json::parse(text);
    EXPECT_EQ(line["message"].get<std::string>(), std::to_string(line["slot"].get<int>()));
  }
}

TEST(LogLineTest, TimesHaveMicroseconds) {
  const std::chrono::system_clock::time_point time{
      std::chrono::microseconds(1'700'000'000'000'042)};
  EXPECT_EQ(TextLogLine(time, "info", "draft", "x"), "2023-11-14T22:13:20.000042Z info draft: x");
  const std::chrono::system_clock::time_point before{std::chrono::microseconds(-1)};
  EXPECT_EQ(TextLogLine(before, "info", "draft", "x"), "1969-12-31T23:59:59.999999Z info draft: x");
}

TEST(LogLineTest, OnlyJsonObjectsCountAsLines) {
  EXPECT_TRUE(IsJsonObject(R"({"a":1})"));
  for (const char* line : {"", "text", "1", "[1]", R"({"a":1)", R"({"a":1} more)"}) {
    EXPECT_FALSE(IsJsonObject(line)) << line;
  }
}

TEST(PeerTextTest, IsCutBetweenCharacters) {
  EXPECT_EQ(Shortened("text", 4), "text");
  EXPECT_EQ(Shortened("texts", 4), "text… (5 bytes)");
  EXPECT_EQ(Shortened("\u00e9\u00e9\u00e9", 4), "\u00e9\u00e9… (6 bytes)");
  EXPECT_EQ(Shortened("\u00e9\u00e9\u00e9", 3), "\u00e9… (6 bytes)");
  EXPECT_EQ(Shortened("a\U0001f600", 4), "a… (5 bytes)");
  EXPECT_EQ(Shortened("a\U0001f600", 5), "a\U0001f600");
  // A text without any UTF-8 is cut too.
  EXPECT_EQ(Shortened(std::string(9, '\x80'), 6), "\x80\x80\x80… (9 bytes)");
}

TEST(PeerTextTest, IsQuotedShortAndWithoutControlBytes) {
  EXPECT_EQ(QuotedShort(""), "\"\"");
  EXPECT_EQ(QuotedShort("gpt"), "\"gpt\"");
  EXPECT_EQ(QuotedShort("a\"b\\c\nd\x1b"), R"("a\"b\\c\nd\x1b")");
  const std::string most(64, 'x');
  EXPECT_EQ(QuotedShort(most), absl::StrCat("\"", most, "\""));
  EXPECT_EQ(QuotedShort(std::string(100000, 'x')), absl::StrCat("\"", most, "…\" (100000 bytes)"));
}

TEST(LogFatalTest, IsWrittenAtEveryLevel) {
  for (const std::string format : {"text", "json"}) {
    ::testing::internal::CaptureStderr();
    LogFatal({.process = "draft", .level = "off", .format = format}, "config.json: is missing");
    const std::string written = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(written, ContainsRegex("error.*draft.*config.json: is missing"));
    EXPECT_EQ(IsJsonObject(written.substr(0, written.size() - 1)), format == "json");
  }
}

}  // namespace
}  // namespace tandem
