#include "services/cli/chat/line_reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "services/cli/chat/line_history.h"
#include "tests/support/temp_dir.h"

namespace tandem::cli {
namespace {

using ::testing::ElementsAre;
using Outcome = LineReader::Outcome;

class PlainLineReaderTest : public ::testing::Test {
 protected:
  PlainLineReaderTest() { EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0); }
  ~PlainLineReaderTest() override {
    close(ends_[0]);
    if (ends_[1] >= 0) close(ends_[1]);
  }

  void Write(const std::string& text) {
    EXPECT_EQ(write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void End() { close(std::exchange(ends_[1], -1)); }

  std::array<int, 2> ends_{};
  Interrupt interrupt_;
  std::ostringstream prompts_;
  std::string line_;
};

TEST_F(PlainLineReaderTest, ReturnsLinesAndThenTheEnd) {
  PlainLineReader reader(ends_[0], &prompts_, interrupt_);
  Write("one\n\ntwo\nthree");
  End();
  for (const char* want : {"one", "", "two", "three"}) {
    EXPECT_EQ(reader.Read("> ", &line_), Outcome::kLine);
    EXPECT_EQ(line_, want);
  }
  EXPECT_EQ(reader.Read("> ", &line_), Outcome::kEnd);
  EXPECT_EQ(prompts_.str(), "> > > > > ");
}

TEST_F(PlainLineReaderTest, AnInterruptEndsTheWaitOnce) {
  PlainLineReader reader(ends_[0], nullptr, interrupt_);
  std::thread raises([this] { interrupt_.Raise(); });
  EXPECT_EQ(reader.Read("> ", &line_), Outcome::kInterrupted);
  raises.join();
  EXPECT_FALSE(interrupt_.is_raised());
  Write("on\n");
  EXPECT_EQ(reader.Read("> ", &line_), Outcome::kLine);
  EXPECT_EQ(line_, "on");
}

TEST(LineHistory, KeepsLinesForItsOwnerOnly) {
  const testing::TempDir dir;
  const auto path = dir / "state" / "tandem" / "chat_history";
  LineHistory history(path);
  EXPECT_TRUE(history.Load().empty());
  EXPECT_TRUE(history.Add("one"));
  EXPECT_FALSE(history.Add("one"));
  EXPECT_FALSE(history.Add("  "));
  EXPECT_TRUE(history.Add("two"));
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  ASSERT_EQ(stat(path.parent_path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700U);
  LineHistory later(path);
  EXPECT_THAT(later.Load(), ElementsAre("one", "two"));
  EXPECT_FALSE(later.Add("two"));
}

TEST(LineHistory, ForgetsTheOldestLines) {
  const testing::TempDir dir;
  const auto path = dir / "chat_history";
  {
    std::ofstream file(path);
    for (size_t i = 0; i < LineHistory::kMostLines + 5; ++i) file << "line " << i << "\n";
  }
  const auto lines = LineHistory(path).Load();
  EXPECT_EQ(lines.size(), LineHistory::kMostLines);
  EXPECT_EQ(lines.front(), "line 5");
  EXPECT_EQ(LineHistory(path).Load(), lines);
}

TEST(LineHistory, WithoutAPathKeepsNothing) {
  LineHistory history("");
  EXPECT_TRUE(history.Add("one"));
  EXPECT_TRUE(history.Load().empty());
}

}  // namespace
}  // namespace tandem::cli
