#include "services/router/watch/request_log.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "common/log/log.h"
#include "common/status.h"

namespace tandem {
namespace {

class RequestLogTest : public ::testing::Test {
 protected:
  void SetUp(const std::string& level) {
    SetUpLog({.process = "router", .level = level, .format = "json"},
             std::make_shared<spdlog::sinks::ostream_sink_mt>(out_));
  }
  std::vector<nlohmann::json> Lines() const {
    std::vector<nlohmann::json> lines;
    std::istringstream text(out_.str());
    for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  static v1::GenerateRequest Named(const std::string& id) {
    v1::GenerateRequest request;
    request.set_request_id(id);
    return request;
  }

  std::ostringstream out_;
};

TEST_F(RequestLogTest, TheIdOfARefusedRequestIsLoggedOnlyIfItIsAllowed) {
  SetUp("debug");
  RequestLog log(/*log_prompts=*/false);
  const absl::Status why = InvalidArgument("no");
  for (const size_t bytes : {1, 128, 129, 1 << 20}) {
    log.Refused(Named(std::string(bytes, 'x')), "", why);
    log.TurnedAway(Named(std::string(bytes, 'x')), "", why, /*now=*/0);
  }
  int num_named = 0;
  for (const nlohmann::json& line : Lines()) {
    EXPECT_LT(line.dump().size(), 400u);
    num_named += line.contains("request_id") ? 1 : 0;
  }
  EXPECT_EQ(num_named, 4);
}

TEST_F(RequestLogTest, RequestsTurnedAwayAreLoggedOncePerSecondAndEachOneAtDebug) {
  for (const bool debug : {false, true}) {
    out_.str("");
    SetUp(debug ? "debug" : "info");
    {
      RequestLog log(/*log_prompts=*/false);
      for (int i = 0; i < 5; ++i) log.TurnedAway(Named("a"), "", Unavailable("full"), 0.1 * i);
    }
    int num_summaries = 0;
    int num_lines = 0;
    for (const nlohmann::json& line : Lines()) {
      ++num_lines;
      if (line["message"] == "requests turned away") ++num_summaries;
    }
    EXPECT_EQ(num_summaries, 2) << "the first one at once, the others at the end";
    EXPECT_EQ(num_lines, debug ? 7 : 2);
  }
}

TEST_F(RequestLogTest, TheLastLineNamesTheSlotAndItsLifeIfThereWasOne) {
  SetUp("info");
  RequestLog log(/*log_prompts=*/false);
  for (const CallId call : {CallId{1}, CallId{2}}) {
    GenerationRequest resolved;
    resolved.request_id = call == 1 ? "ran" : "waited";
    log.Started(call, "", resolved, 0);
  }
  log.Finished(1, absl::OkStatus(), 3, SlotLife{.slot = 7, .epoch = 4}, 1);
  log.Finished(2, absl::CancelledError("left"), 0, std::nullopt, 1);
  const std::vector<nlohmann::json> lines = Lines();
  ASSERT_EQ(lines.size(), 4u);
  for (const nlohmann::json& line : lines) {
    const bool ran = line["request_id"] == "ran";
    const bool finished = line["message"] == "request finished";
    EXPECT_EQ(line.contains("slot"), ran && finished) << line;
    EXPECT_EQ(line.contains("epoch"), ran && finished) << line;
  }
  EXPECT_EQ(lines[2]["slot"], 7);
  EXPECT_EQ(lines[2]["epoch"], 4);
}

TEST_F(RequestLogTest, BelowTheLevelNothingIsLoggedOrKept) {
  SetUp("warn");
  RequestLog log(/*log_prompts=*/false);
  GenerationRequest resolved;
  resolved.request_id = "a";
  log.Refused(Named("a"), "", InvalidArgument("no"));
  log.Started(1, "", resolved, 0);
  log.Finished(1, absl::OkStatus(), 3, SlotLife{0, 1}, 1);
  SetUp("info");
  log.Finished(1, absl::OkStatus(), 3, SlotLife{0, 1}, 2);  // the request has ended already
  EXPECT_EQ(out_.str(), "");
}

}  // namespace
}  // namespace tandem
