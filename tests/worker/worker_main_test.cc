// Tests the executables from a supervisor's point of view.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/child_process.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/tiny_router.h"

namespace tandem {
namespace {

using std::chrono::seconds;
using testing::ChildProcess;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr seconds kPatience{30};

class WorkerMainTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { testing::WriteRandomModel(Model(), testing::RandomModelSpec()); }

  std::filesystem::path Model() const { return dir_ / "model"; }
  std::string Socket() const { return "unix:" + (dir_ / "worker.sock").string(); }
  std::vector<std::string> Command(const std::string& listen) const {
    std::vector<std::string> command = {testing::Executable(GetParam()).string(),
                                        "--model",
                                        Model().string(),
                                        "--listen",
                                        listen,
                                        "--threads",
                                        "1"};
    // A killed verifier leaves its ring's socket behind. The test puts it into a folder that it
    // cleans up.
    if (std::string(GetParam()) == "tandem-verifier") {
      command.insert(command.end(), {"--ring-dir", (dir_ / "ring").string()});
    }
    return command;
  }
  // Returns the output of a command on both streams, and its exit code.
  static std::pair<std::string, int> Output(const std::vector<std::string>& command) {
    std::vector<std::string> shell = {"/bin/sh", "-c", "exec 2>&1; exec \"$0\" \"$@\""};
    shell.insert(shell.end(), command.begin(), command.end());
    ChildProcess child(shell);
    const std::string output = child.ReadAll(kPatience);
    return {output, child.Wait(kPatience).value_or(-1)};
  }

  testing::TempDir dir_;
};
INSTANTIATE_TEST_SUITE_P(Workers, WorkerMainTest,
                         ::testing::Values("tandem-draft", "tandem-verifier"),
                         [](const auto& worker) {
                           return std::string(worker.param) == "tandem-draft" ? "Draft"
                                                                              : "Verifier";
                         });

TEST_P(WorkerMainTest, ServesOnAUnixSocketAndEndsCleanly) {
  for (int signal : {SIGTERM, SIGINT}) {
    ChildProcess worker(Command(Socket()));
    EXPECT_EQ(worker.WaitReady(), Socket());
    struct stat info {};
    ASSERT_EQ(stat((dir_ / "worker.sock").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0600u);
    worker.Signal(signal);
    EXPECT_EQ(worker.ReadAll(kPatience), "ready: " + Socket() + "\n") << "exactly one line";
    EXPECT_EQ(worker.Wait(kPatience), 0);
    EXPECT_FALSE(std::filesystem::exists(dir_ / "worker.sock"));
  }
}

TEST_P(WorkerMainTest, EndsCleanlyWhileASessionIsOpen) {
  ChildProcess worker(Command(Socket()));
  testing::VerifierClient verifier(worker.WaitReady());
  testing::DraftClient draft(Socket());
  if (std::string(GetParam()) == "tandem-draft") {
    testing::Attach<testing::DraftClient, v1::DraftCommand>(draft, 1);
  } else {
    testing::Attach<testing::VerifierClient, v1::VerifierCommand>(verifier, 1);
  }
  worker.Signal(SIGTERM);
  EXPECT_EQ(worker.Wait(kPatience), 0);
  EXPECT_FALSE(draft.WaitClosed().ok());
  EXPECT_FALSE(verifier.WaitClosed().ok());
}

TEST_P(WorkerMainTest, PortZeroIsReportedAsTheRealPort) {
  ChildProcess worker(Command("127.0.0.1:0"));
  const std::string address = worker.WaitReady();
  EXPECT_THAT(address, StartsWith("127.0.0.1:"));
  EXPECT_NE(address, "127.0.0.1:0");
  if (std::string(GetParam()) == "tandem-verifier") {
    testing::VerifierClient client(address);
    testing::Attach<testing::VerifierClient, v1::VerifierCommand>(client, 1);
  } else {
    testing::DraftClient client(address);
    testing::Attach<testing::DraftClient, v1::DraftCommand>(client, 1);
  }
}

TEST_P(WorkerMainTest, TakesOverTheSocketOfADeadWorkerButNotOfALivingOne) {
  {
    ChildProcess killed(Command(Socket()));
    killed.WaitReady();
    killed.Signal(SIGKILL);
    killed.Wait(kPatience);
  }
  ASSERT_TRUE(std::filesystem::exists(dir_ / "worker.sock"));
  ChildProcess next(Command(Socket()));
  EXPECT_EQ(next.WaitReady(), Socket());
  const auto [output, code] = Output(Command(Socket()));
  EXPECT_EQ(code, 1);
  EXPECT_THAT(output, HasSubstr("another process listens there"));
  EXPECT_TRUE(std::filesystem::exists(dir_ / "worker.sock"));
}

TEST_P(WorkerMainTest, SaysInOneLineWhyItCannotServe) {
  std::vector<std::string> command = Command(Socket());
  command[2] = (dir_ / "nothing").string();
  for (const auto& [bad, what] :
       {std::pair(command, "nothing does not exist"), std::pair(Command("0.0.0.0:0"), "--insecure"),
        std::pair(Command("nonsense"), "HOST:PORT")}) {
    const auto [output, code] = Output(bad);
    EXPECT_EQ(code, 1) << output;
    EXPECT_THAT(output, HasSubstr(what));
    EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 1) << output;
  }
}

TEST_P(WorkerMainTest, AContextOverTheModelsLimitIsCutForADrafterAndRefusedForATarget) {
  std::vector<std::string> command = Command(Socket());
  command.insert(command.end(), {"--max-context", "513"});
  if (std::string(GetParam()) == "tandem-verifier") {
    EXPECT_THAT(Output(command).first, HasSubstr("max_position_embeddings is 512"));
    return;
  }
  ChildProcess worker(command);
  EXPECT_EQ(worker.WaitReady(), Socket());
}

TEST_P(WorkerMainTest, BadCommandLinesExitWithTwo) {
  EXPECT_EQ(Output({testing::Executable(GetParam()).string()}).second, 2);
  std::vector<std::string> command = Command(Socket());
  command.emplace_back("--no-such-option");
  EXPECT_EQ(Output(command).second, 2);
  EXPECT_EQ(Output({testing::Executable(GetParam()).string(), "--help"}).second, 0);
}

TEST_P(WorkerMainTest, EndsWithItsParentWhenToldTo) {
  const std::string script =
      "\"$0\" --model \"$1\" --listen \"$2\" --threads 1 --exit-with-parent & wait";
  ChildProcess shell({"/bin/sh", "-c", script, testing::Executable(GetParam()).string(),
                      Model().string(), Socket()});
  shell.WaitReady();
  shell.Signal(SIGKILL);
  // The worker holds the other end of the pipe, so the output ends with the worker.
  EXPECT_NO_THROW(shell.ReadAll(kPatience));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "worker.sock"));
}

}  // namespace
}  // namespace tandem
