// Tests `tandem serve` and `tandem generate` as processes with the embedded pair: what they leave
// behind, and when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/child_process.h"
#include "tests/support/temp_dir.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using testing::ChildProcess;
using testing::Executable;

constexpr seconds kPatience{60};

// Waits until a condition is true, with the patience that a slow machine needs.
bool Eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < deadline) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

class ServeTest : public ::testing::Test {
 protected:
  // Sockets are in the test's own folder, so that the test can see what is left there.
  ServeTest() : environment_{"XDG_RUNTIME_DIR=" + runtime_.path().string()} {}

  std::vector<std::string> Command(const std::vector<std::string>& arguments) const {
    std::vector<std::string> command = {Executable("tandem").string()};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
  }

  ChildProcess Start(const std::vector<std::string>& arguments) const {
    return ChildProcess(Command(arguments), environment_);
  }

  bool NothingLeft() const { return fs::is_empty(runtime_.path()); }

  static std::set<pid_t> ChildrenOf(pid_t pid) {
    std::set<pid_t> children;
    const std::string id = std::to_string(pid);
    std::ifstream file("/proc/" + id + "/task/" + id + "/children");
    for (pid_t child; file >> child;) children.insert(child);
    return children;
  }

  static bool Gone(const std::set<pid_t>& pids) {
    for (pid_t pid : pids) {
      std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
      std::string id;
      std::string name;
      std::string state;
      stat >> id >> name >> state;
      if (!state.empty() && state != "Z" && state != "X") return false;
    }
    return true;
  }

  testing::TempDir runtime_;
  std::vector<std::string> environment_;
};

TEST_F(ServeTest, ServesAndLeavesNothingBehind) {
  ChildProcess serve = Start({"serve", "--listen", "127.0.0.1:0"});
  const std::string address = serve.WaitReady();
  EXPECT_EQ(address.rfind("127.0.0.1:", 0), 0u);
  EXPECT_NE(address, "127.0.0.1:0");
  const std::set<pid_t> children = ChildrenOf(serve.pid());
  EXPECT_EQ(children.size(), 3u);
  for (pid_t child : children) EXPECT_EQ(getsid(child), getsid(serve.pid()));

  ChildProcess generate =
      Start({"generate", "--connect", address, "--max-tokens", "5", "Once upon a time"});
  const std::string text = generate.ReadAll(kPatience);
  EXPECT_GT(text.size(), 5u);
  EXPECT_EQ(generate.Wait(kPatience), 0);

  serve.Signal(SIGTERM);
  EXPECT_EQ(serve.Wait(kPatience), 0);
  EXPECT_EQ(serve.ReadAll(kPatience), "ready: " + address + "\n");
  EXPECT_TRUE(Gone(children));
  EXPECT_TRUE(NothingLeft());
}

TEST_F(ServeTest, ChildrenDoNotOutliveAKilledSupervisor) {
  ChildProcess serve = Start({"serve", "--listen", "127.0.0.1:0"});
  serve.WaitReady();
  const std::set<pid_t> children = ChildrenOf(serve.pid());
  ASSERT_EQ(children.size(), 3u);
  serve.Signal(SIGKILL);
  serve.Wait(kPatience);
  EXPECT_TRUE(Eventually([&] { return Gone(children); }));
  // The next supervisor removes what the killed one could not remove.
  ChildProcess next = Start({"serve", "--listen", "127.0.0.1:0"});
  next.WaitReady();
  next.Signal(SIGINT);
  EXPECT_EQ(next.Wait(kPatience), 0);
  EXPECT_TRUE(NothingLeft());
}

TEST_F(ServeTest, AKilledChildComesBackAndServingContinues) {
  ChildProcess serve = Start({"serve", "--listen", "127.0.0.1:0"});
  const std::string address = serve.WaitReady();
  const std::set<pid_t> before = ChildrenOf(serve.pid());
  ASSERT_EQ(before.size(), 3u);
  for (pid_t child : before) {
    kill(child, SIGKILL);
    ASSERT_TRUE(Eventually([&] {
      const std::set<pid_t> now = ChildrenOf(serve.pid());
      return now.count(child) == 0 && now.size() == 3;
    }));
  }
  // Calls fail until the router is back on its port and has a verifier. Then they work again.
  EXPECT_TRUE(Eventually([&] {
    ChildProcess generate =
        Start({"generate", "--connect", address, "--max-tokens", "3", "Once upon a time"});
    return generate.Wait(kPatience) == 0;
  }));
  serve.Signal(SIGTERM);
  EXPECT_EQ(serve.Wait(kPatience), 0);
  EXPECT_TRUE(NothingLeft());
}

TEST_F(ServeTest, ATakenPortIsRefusedByName) {
  ChildProcess first = Start({"serve", "--listen", "127.0.0.1:0", "--drafter", "none"});
  const std::string address = first.WaitReady();
  ChildProcess second = Start({"serve", "--listen", address});
  EXPECT_EQ(second.Wait(kPatience), 1);
  EXPECT_EQ(second.ReadAll(kPatience), "");
  first.Signal(SIGTERM);
  EXPECT_EQ(first.Wait(kPatience), 0);
  EXPECT_TRUE(NothingLeft());
}

TEST_F(ServeTest, ABrokenModelStopsServeWithTheWorkersMessage) {
  const testing::TempDir model;
  std::ofstream(model / "config.json") << "{ not json";
  std::ofstream(model / "model.safetensors") << "12345678{}";
  const fs::path errors = model / "errors";
  ChildProcess serve(
      {"/bin/sh", "-c", "exec \"$0\" \"$@\" 2> \"$errors\"", Executable("tandem").string(), "serve",
       "--listen", "127.0.0.1:0", "--target", model.path().string()},
      {environment_[0], "errors=" + errors.string()});
  EXPECT_EQ(serve.Wait(kPatience), 1);
  std::ifstream file(errors);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_NE(text.find("config.json"), std::string::npos) << text;
  EXPECT_EQ(text.find("exited with status"), std::string::npos) << text;
  EXPECT_EQ(text.find("error: "), text.rfind("error: ")) << "it is said once: " << text;
  EXPECT_TRUE(NothingLeft());
}

TEST_F(ServeTest, AnInterruptedGenerateEndsItsPrivateServer) {
  ChildProcess generate = Start({"generate", "--echo", "--ignore-eos", "--max-tokens", "1000",
                                 "--threads", "1", "--no-draft", "Once upon a time"});
  generate.WaitForLine("Once upon", kPatience);
  const std::set<pid_t> children = ChildrenOf(generate.pid());
  generate.Signal(SIGINT);
  // The exit code is 130 after an interruption. A fast machine may have finished the last token by
  // then.
  EXPECT_THAT(generate.Wait(kPatience), ::testing::AnyOf(130, 0));
  EXPECT_TRUE(Gone(children));
  EXPECT_TRUE(NothingLeft());
}

TEST_F(ServeTest, ASecondInterruptEndsAtOnce) {
  ChildProcess serve = Start({"serve", "--listen", "127.0.0.1:0", "--drafter", "none"});
  serve.WaitReady();
  const std::set<pid_t> children = ChildrenOf(serve.pid());
  ASSERT_EQ(children.size(), 2u);
  // A stopped router cannot drain, and the supervisor would wait for it.
  for (pid_t child : children) kill(child, SIGSTOP);
  serve.Signal(SIGINT);
  EXPECT_EQ(serve.Wait(std::chrono::milliseconds(100)), std::nullopt);
  // The second signal is one with the first if the first has not been handled yet.
  EXPECT_TRUE(Eventually([&] {
    serve.Signal(SIGINT);
    return serve.Wait(std::chrono::milliseconds(500)).has_value();
  }));
  EXPECT_EQ(serve.Wait(kPatience), 130);
  EXPECT_TRUE(Gone(children));
  EXPECT_TRUE(NothingLeft());
}

}  // namespace
}  // namespace tandem::cli
