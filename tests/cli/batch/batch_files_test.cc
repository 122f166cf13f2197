#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "services/cli/batch/batch_input.h"
#include "services/cli/batch/batch_line.h"
#include "services/cli/batch/batch_output.h"
#include "services/cli/batch/batch_progress.h"
#include "tests/support/temp_dir.h"

namespace tandem::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

std::string Line(const std::string& custom_id) {
  return R"({"custom_id": ")" + custom_id +
         R"(", "method": "POST", "url": "/v1/completions", "body": {"z": 1, "a": [2.5, "ä"]}})";
}

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A write fails where it would make a file larger than this, after what still has room was written.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &earlier_);
    const rlimit limit = {bytes, earlier_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &earlier_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*const handler_)(int) = std::signal(SIGXFSZ, SIG_IGN);
  rlimit earlier_ = {};
};

class BatchFilesTest : public ::testing::Test {
 protected:
  void Write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  std::string Text() const { return TextOf(path_); }

  testing::TempDir dir_;
  const std::string path_ = dir_ / "file.jsonl";
};

TEST(BatchLine, KeepsTheBodyAsItIs) {
  const auto line = ParseBatchLine(Line("a"));
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->custom_id, "a");
  EXPECT_FALSE(line->is_chat);
  EXPECT_EQ(line->body, R"({"z":1,"a":[2.5,"ä"]})");
}

TEST(BatchLine, NamesWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> kCases = {
      {"x", "the line is not a JSON object"},
      {"[]", "the line is not a JSON object"},
      {"{\"custom_id\": \"\xFF\"}", "the line is not a JSON object"},
      {"{}", "custom_id: is missing"},
      {R"({"custom_id": 3})", "custom_id: must be a text"},
      {R"({"custom_id": ""})", "custom_id: is empty"},
      {R"({"custom_id": "a", "method": "GET"})", "method: got \"GET\", allowed: POST"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/embeddings"})",
       "allowed: /v1/completions or /v1/chat/completions"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": 3})",
       "body: must be a JSON object"},
  };
  for (const auto& [text, message] : kCases) {
    EXPECT_THAT(std::string(ParseBatchLine(text).status().message()), HasSubstr(message)) << text;
  }
}

std::string Nested(int depth) {
  return std::string(static_cast<size_t>(depth), '[') +
         std::string(static_cast<size_t>(depth), ']');
}

TEST(BatchLine, ADeepLineIsRefusedAndTheBodyMayBeAsDeepAsOverHttp) {
  const auto line = [](int depth) {
    return R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"x": )" +
           Nested(depth) + "}}";
  };
  const auto allowed = ParseBatchLine(line(63));
  ASSERT_TRUE(allowed.ok()) << allowed.status();
  EXPECT_EQ(allowed->body, R"({"x":)" + Nested(63) + "}");
  for (const int depth : {64, 200'000}) {
    EXPECT_EQ(std::string(ParseBatchLine(line(depth)).status().message()),
              "the line is not a JSON object that can be sent: it is nested more than 65 levels "
              "deep");
  }
  EXPECT_FALSE(ParseBatchLine(std::string(200'000, '[')).ok());
}

TEST(BatchLine, AnswersComeBack) {
  const std::string good = BatchAnswerLine("a \"b\"", "cmpl-1", 200, R"({"choices":[]})");
  EXPECT_EQ(good,
            "{\"id\":\"batch_req_cmpl-1\",\"custom_id\":\"a \\\"b\\\"\",\"response\":{"
            "\"status_code\":200,\"request_id\":\"cmpl-1\",\"body\":{\"choices\":[]}},"
            "\"error\":null}\n");
  const auto answer = ParseBatchAnswer(good);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->custom_id, "a \"b\"");
  EXPECT_TRUE(answer->has_succeeded);
  EXPECT_FALSE(ParseBatchAnswer(BatchAnswerLine("a", "b", 400, "{}"))->has_succeeded);
  EXPECT_FALSE(ParseBatchAnswer(R"({"custom_id": "a", "response": null})")->has_succeeded);
  EXPECT_FALSE(ParseBatchAnswer(R"({"custom_id": "a"})").ok());
}

TEST_F(BatchFilesTest, InputHasLinesAndProblemsWithTheirNumbers) {
  Write(Line("a") + "\n\nbad\n" + Line("b") + "\r\n" + Line("a") + "\n" + Line("c"));
  const auto input = BatchInput::Open(path_);
  ASSERT_TRUE(input.ok()) << input.status();
  std::vector<std::string> ids;
  for (const BatchInput::Entry& entry : (*input)->entries()) {
    ids.push_back(entry.custom_id + std::to_string(entry.number));
    const auto line = (*input)->Read(entry);
    ASSERT_TRUE(line.ok()) << line.status();
    EXPECT_EQ(line->custom_id, entry.custom_id);
  }
  EXPECT_THAT(ids, ElementsAre("a1", "b4", "c6"));
  ASSERT_EQ((*input)->problems().size(), 2U);
  EXPECT_EQ((*input)->problems()[0].number, 3);
  EXPECT_EQ((*input)->problems()[1].number, 5);
  EXPECT_EQ((*input)->problems()[1].message,
            "custom_id: \"a\" is that of line 1, and only that line is sent");
}

TEST_F(BatchFilesTest, InputNoticesThatTheFileChanged) {
  Write(Line("a") + "\n");
  const auto input = BatchInput::Open(path_);
  ASSERT_TRUE(input.ok());
  Write(Line("b") + "\n");
  EXPECT_THAT(std::string((*input)->Read((*input)->entries()[0]).status().message()),
              HasSubstr("the file changed: line 1"));
  EXPECT_FALSE(BatchInput::Open(path_ + ".none").ok());
  EXPECT_FALSE(BatchInput::Open("/").ok());
}

TEST_F(BatchFilesTest, OutputKeepsWhatSucceeded) {
  const std::string good = BatchAnswerLine("a", "1", 200, "{}");
  Write(good + BatchAnswerLine("b", "2", 503, "{}") + BatchAnswerLine("c", "3", 200, "{}") +
        "{\"half");
  {
    const auto output = BatchOutput::Open(path_);
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_THAT((*output)->answered(), UnorderedElementsAre("a", "c"));
    EXPECT_EQ(BatchOutput::Open(path_).status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE((*output)->Append(BatchAnswerLine("b", "4", 200, "{}")).ok());
    EXPECT_TRUE((*output)->Sync().ok());
  }
  EXPECT_EQ(Text(),
            good + BatchAnswerLine("c", "3", 200, "{}") + BatchAnswerLine("b", "4", 200, "{}"));
  const auto again = BatchOutput::Open(path_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_THAT((*again)->answered(), UnorderedElementsAre("a", "b", "c"));
}

TEST_F(BatchFilesTest, OutputLeavesAnotherFileAlone) {
  Write("my diary\n" + BatchAnswerLine("b", "2", 503, "{}"));
  const std::string before = Text();
  EXPECT_THAT(std::string(BatchOutput::Open(path_).status().message()),
              StartsWith("--output: line 1 of"));
  EXPECT_EQ(Text(), before);
}

TEST_F(BatchFilesTest, ARewrittenOutputKeepsItsPermissionsAndFollowsNoLink) {
  namespace fs = std::filesystem;
  const std::string good = BatchAnswerLine("a", "1", 200, "{}");
  Write(good + "{\"half");
  const fs::perms permissions = fs::perms::owner_read | fs::perms::owner_write |
                                fs::perms::group_read | fs::perms::group_write;
  fs::permissions(path_, permissions);
  const std::string other = dir_ / "other";
  std::ofstream(other) << "my diary";
  fs::create_symlink(other, BatchReplacementPath(path_));
  const auto output = BatchOutput::Open(path_);
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(Text(), good);
  EXPECT_EQ(fs::status(path_).permissions(), permissions);
  EXPECT_EQ(TextOf(other), "my diary");
  EXPECT_FALSE(fs::exists(fs::symlink_status(BatchReplacementPath(path_))));
}

TEST_F(BatchFilesTest, OneOfSeveralRunsAtOnceGetsTheOutput) {
  constexpr int kRounds = 20;
  const std::string good = BatchAnswerLine("a", "1", 200, "{}");
  for (int round = 0; round < kRounds; ++round) {
    Write(good + "{\"half");
    std::vector<absl::StatusOr<std::unique_ptr<BatchOutput>>> outputs(4);
    std::vector<std::thread> threads;
    threads.reserve(outputs.size());
    for (auto& output : outputs) {
      threads.emplace_back([&output, this] { output = BatchOutput::Open(path_); });
    }
    for (std::thread& thread : threads) thread.join();
    int num_open = 0;
    for (const auto& output : outputs) {
      if (output.ok()) {
        ++num_open;
        EXPECT_TRUE((*output)->Append(BatchAnswerLine("b", "2", 200, "{}")).ok());
      } else {
        EXPECT_EQ(output.status().code(), absl::StatusCode::kFailedPrecondition) << output.status();
      }
    }
    EXPECT_EQ(num_open, 1);
    EXPECT_EQ(Text(), good + BatchAnswerLine("b", "2", 200, "{}"));
  }
}

TEST_F(BatchFilesTest, AWriteThatFailsLeavesNoHalfLineAndEndsTheWriting) {
  const std::string good = BatchAnswerLine("a", "1", 200, "{}");
  const auto output = BatchOutput::Open(path_);
  ASSERT_TRUE(output.ok()) << output.status();
  ASSERT_TRUE((*output)->Append(good).ok());
  absl::Status failed;
  {
    const FileSizeLimit limit(good.size() + 10);
    failed = (*output)->Append(BatchAnswerLine("b", "2", 200, "{}"));
  }
  EXPECT_EQ(failed.code(), absl::StatusCode::kUnavailable) << failed;
  EXPECT_EQ((*output)->Append(BatchAnswerLine("c", "3", 200, "{}")), failed);
  EXPECT_EQ(Text(), good);
}

TEST(BatchProgress, SaysWhatToDoAboutFailures) {
  EXPECT_EQ(BatchFailureAdvice({.lines = 3}), "");
  EXPECT_EQ(BatchFailureAdvice({.lines = 3, .failed = 2}),
            "The same command sends the lines that failed again.");
  EXPECT_EQ(BatchFailureAdvice({.lines = 3, .failed = 2, .refused = 2}),
            "The lines that failed must be corrected first. The same command then sends them.");
  EXPECT_EQ(BatchFailureAdvice({.lines = 3, .failed = 2, .refused = 1}),
            "The same command sends the lines that failed again, but 1 of them must be corrected "
            "first.");
}

TEST(BatchProgress, SaysWhatIsDoneAndLeft) {
  EXPECT_EQ(BatchProgressText({.lines = 10}, 0), "0 of 10 lines");
  EXPECT_EQ(
      BatchProgressText({.lines = 10, .earlier = 2, .answered = 4, .failed = 1, .tokens = 100}, 2),
      "7 of 10 lines, 1 failed, 50 tokens/s, 2 s left");
  EXPECT_EQ(BatchProgressText({.lines = 10000, .answered = 1, .tokens = 1}, 10),
            "1 of 10000 lines, 0 tokens/s, 27.8 h left");
  EXPECT_EQ(BatchProgressText({.lines = 5, .earlier = 5}, 1), "5 of 5 lines");
}

}  // namespace
}  // namespace tandem::cli
