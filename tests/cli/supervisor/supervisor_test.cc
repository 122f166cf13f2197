#include "services/cli/supervisor/supervisor.h"

#include <gmock/gmock.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tandem/v1/worker.grpc.pb.h"
#include "tests/support/temp_dir.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Children are small shell scripts that write their events to $journal.
class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorTest() {
    options_.restart = {.quick_life = milliseconds(0),  // only dying before `ready` is quick
                        .max_quick_failures = 5,
                        .first_delay = milliseconds(1),
                        .max_delay = milliseconds(4),
                        .given_up_delay = milliseconds(10),
                        .start_timeout = milliseconds(60000)};
  }

  // A child that reports that it serves, and then waits. `$name`, `$journal`, `$folder` and
  // `$listen` are set.
  static constexpr char kServe[] = R"(
    echo "start $name" >> $journal
    trap 'echo "stop $name" >> $journal; exit 0' TERM
    echo "ready: $listen"
    while :; do sleep 0.02; done)";

  ChildSpec Child(const std::string& name, const std::string& script) {
    const fs::path path = dir_ / (name + ".sh");
    std::ofstream(path) << "#!/bin/sh\nname=" << name << "\nfolder=" << dir_.path().string()
                        << "\njournal=" << Journal().string() << "\nlisten=$2\n"
                        << script << "\n";
    fs::permissions(path, fs::perms::owner_all);
    ChildSpec spec;
    spec.name = name;
    spec.command = {path.string()};
    spec.listen = "unix:" + (dir_ / (name + ".sock")).string();
    return spec;
  }

  void UseServingChildren() {
    options_.workers = {Child("verifier", kServe), Child("draft", kServe)};
    options_.router = Child("router", kServe);
  }

  // Runs until the supervisor has stopped. `when_ready` is called when the server is ready.
  void RunUntilStopped(const std::function<void()>& when_ready) {
    supervisor_ = std::make_unique<Supervisor>(
        io_, options_,
        SupervisorEvents{.ready =
                             [&](const std::string& address) {
                               address_ = address;
                               when_ready();
                             },
                         .http = [&](const std::string& address) { http_ = address; },
                         .stopped =
                             [&](const absl::Status& status) {
                               ++stopped_;
                               status_ = status;
                               limit_.cancel();
                             },
                         .log =
                             [&](const std::string& name, const std::string& line) {
                               log_.push_back(name + ": " + line);
                               if (on_log_) on_log_(log_.back());
                             }});
    supervisor_->Start();
    limit_.expires_after(std::chrono::seconds(120));
    limit_.async_wait([this](const auto& error) {
      if (error) return;
      ADD_FAILURE() << "the supervisor did not stop";
      io_.stop();
    });
    io_.run();
    EXPECT_EQ(stopped_, 1);
  }

  void StopWhenReady() {
    RunUntilStopped([this] { supervisor_->Stop(); });
  }

  fs::path Journal() const { return dir_ / "journal"; }

  std::vector<std::string> JournalLines() const {
    std::ifstream file(Journal());
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  int CountInJournal(const std::string& line) const {
    const auto lines = JournalLines();
    return static_cast<int>(std::count(lines.begin(), lines.end(), line));
  }

  std::string Log() const {
    std::ostringstream text;
    for (const std::string& line : log_) text << line << "\n";
    return text.str();
  }

  // Returns true if no child is left, neither running nor waiting to be reaped.
  static bool NoChildren() {
    errno = 0;
    return waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD;
  }

  testing::TempDir dir_;
  SupervisorOptions options_;
  boost::asio::io_context io_;
  boost::asio::steady_timer limit_{io_};
  std::unique_ptr<Supervisor> supervisor_;
  std::string address_;
  std::string http_;
  absl::Status status_;
  int stopped_ = 0;
  std::vector<std::string> log_;
  std::function<void(const std::string& line)> on_log_;
};

TEST_F(SupervisorTest, TheGatewayIsStartedLastAndStoppedFirst) {
  UseServingChildren();
  options_.gateway = Child("gateway", R"(
    echo "start $name $3 $4" >> $journal
    trap 'echo "stop $name" >> $journal; exit 0' TERM
    echo "http: somewhere:80"
    while :; do sleep 0.02; done)");
  options_.router.listen = "0.0.0.0:77";
  RunUntilStopped([this] {
    EXPECT_THAT(JournalLines(), Contains("start gateway --connect 127.0.0.1:77"));
    boost::asio::post(io_, [this] { supervisor_->Stop(); });
  });
  EXPECT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(address_, "0.0.0.0:77");
  EXPECT_EQ(http_, "somewhere:80");
  const std::vector<std::string> lines = JournalLines();
  EXPECT_THAT(std::vector<std::string>(lines.begin() + 2, lines.end()),
              ElementsAre("start router", "start gateway --connect 127.0.0.1:77", "stop gateway",
                          "stop router", "stop draft", "stop verifier"));
}

TEST_F(SupervisorTest, AGatewayThatDiesIsStartedAgainAtItsAddress) {
  UseServingChildren();
  options_.gateway = Child("gateway", R"(
    echo "gateway at $listen" >> $journal
    echo "http: somewhere:80"
    sleep 0.1)");
  on_log_ = [this](const std::string& line) {
    if (line == "tandem: gateway is back") supervisor_->Stop();
  };
  RunUntilStopped([] {});
  EXPECT_TRUE(status_.ok()) << status_;
  EXPECT_GE(CountInJournal("gateway at somewhere:80"), 1);
  EXPECT_EQ(CountInJournal("start router"), 1);
}

TEST_F(SupervisorTest, StartsTheRouterAfterTheWorkersAndStopsInOrder) {
  UseServingChildren();
  StopWhenReady();
  EXPECT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(address_, options_.router.listen);
  const std::vector<std::string> lines = JournalLines();
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_THAT(std::vector<std::string>(lines.begin(), lines.begin() + 2),
              ::testing::UnorderedElementsAre("start verifier", "start draft"));
  EXPECT_THAT(std::vector<std::string>(lines.begin() + 2, lines.end()),
              ElementsAre("start router", "stop router", "stop draft", "stop verifier"));
  EXPECT_TRUE(NoChildren());
}

TEST_F(SupervisorTest, ChildrenStayInTheSessionAndHaveTheirOwnGroups) {
  UseServingChildren();
  options_.router = Child("router", R"(cat /proc/$$/stat > $folder/stat
                                       echo "ready: $listen"; exec sleep 1000)");
  StopWhenReady();
  std::ifstream file(dir_ / "stat");
  std::string name;
  std::string state;
  pid_t self = 0;
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  file >> self >> name >> state >> parent >> group >> session;
  EXPECT_EQ(parent, getpid());
  EXPECT_EQ(session, getsid(0));
  EXPECT_EQ(group, self);
}

TEST_F(SupervisorTest, RestartsAWorkerThatDies) {
  UseServingChildren();
  // The first life of the drafter ends when a file appears.
  options_.workers[1] = Child("draft", R"(echo "start $name" >> $journal
    echo "ready: $listen"
    if [ ! -e $folder/once ]; then
      touch $folder/once; while [ ! -e $folder/die ]; do sleep 0.02; done; kill -9 $$
    fi
    exec sleep 1000)");
  on_log_ = [this](const std::string& line) {
    if (line == "tandem: draft is back") supervisor_->Stop();
  };
  RunUntilStopped([this] { std::ofstream(dir_ / "die") << "now"; });
  EXPECT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(CountInJournal("start draft"), 2);
  EXPECT_EQ(CountInJournal("start verifier"), 1);
  EXPECT_EQ(CountInJournal("start router"), 1);
  EXPECT_THAT(Log(), HasSubstr("tandem: draft was killed by signal 9"));
  EXPECT_TRUE(NoChildren());
}

TEST_F(SupervisorTest, ARouterThatComesBackListensAtTheSameAddress) {
  UseServingChildren();
  // As with port 0, the first life chooses an address, and the next life is asked to use the
  // reported one.
  options_.router = Child("router", R"(echo "router asked for $listen" >> $journal
    echo "ready: 127.0.0.1:4321"
    if [ ! -e $folder/once ]; then
      touch $folder/once; while [ ! -e $folder/die ]; do sleep 0.02; done; exit 3
    fi
    exec sleep 1000)");
  options_.router.listen = "127.0.0.1:0";
  on_log_ = [this](const std::string& line) {
    if (line == "tandem: router is back") supervisor_->Stop();
  };
  RunUntilStopped([this] { std::ofstream(dir_ / "die") << "now"; });
  EXPECT_EQ(address_, "127.0.0.1:4321");
  EXPECT_EQ(CountInJournal("router asked for 127.0.0.1:0"), 1);
  EXPECT_EQ(CountInJournal("router asked for 127.0.0.1:4321"), 1);
  EXPECT_THAT(Log(), HasSubstr("router exited with status 3"));
}

TEST_F(SupervisorTest, AChildThatRefusesToStartSaysWhyInItsOwnWords) {
  UseServingChildren();
  options_.workers[0] = Child("verifier", R"(echo "refused: there is no such model"; exit 1)");
  RunUntilStopped([] {});
  EXPECT_EQ(status_.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status_.message(), "there is no such model");
}

TEST_F(SupervisorTest, ARefusalAfterTheServerServedIsInTheLog) {
  UseServingChildren();
  options_.workers[0] = Child("verifier", R"(
    if [ ! -e $folder/once ]; then touch $folder/once; echo "ready: $listen"
      while [ ! -e $folder/die ]; do sleep 0.02; done; exit 9; fi
    echo "refused: the file is gone"; exit 1)");
  RunUntilStopped([this] { std::ofstream(dir_ / "die") << "now"; });
  EXPECT_THAT(Log(), HasSubstr("verifier does not start: the file is gone"));
}

TEST_F(SupervisorTest, GivesUpAWorkerThatKeepsDying) {
  UseServingChildren();
  options_.workers[0] = Child("verifier", R"(echo "start $name" >> $journal
    if [ ! -e $folder/once ]; then touch $folder/once; echo "ready: $listen"
      while [ ! -e $folder/die ]; do sleep 0.02; done; exit 9; fi
    echo "no memory" >&2; exit 1)");
  RunUntilStopped([this] { std::ofstream(dir_ / "die") << "now"; });
  EXPECT_EQ(status_.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status_.message()), HasSubstr("verifier exited with status 1"));
  EXPECT_THAT(std::string(status_.message()), HasSubstr("5 times in a row"));
  EXPECT_EQ(CountInJournal("start verifier"), 6);  // the good life and five quick failures
  EXPECT_THAT(log_, Contains("verifier: no memory"));
  EXPECT_THAT(JournalLines(), Contains("stop router"));
  EXPECT_THAT(JournalLines(), Contains("stop draft"));
  EXPECT_TRUE(NoChildren());
}

TEST_F(SupervisorTest, DoublesTheDelayAfterEachQuickDeathUpToALimit) {
  UseServingChildren();
  options_.restart.first_delay = milliseconds(20);
  options_.restart.max_delay = milliseconds(80);
  options_.workers[0] = Child("verifier", R"(date +%s%N >> $folder/starts
    if [ ! -e $folder/once ]; then touch $folder/once; echo "ready: $listen"
      while [ ! -e $folder/die ]; do sleep 0.02; done; exit 9; fi
    exit 1)");
  RunUntilStopped([this] { std::ofstream(dir_ / "die") << "now"; });
  std::vector<int64_t> starts;  // in ns: the first life, then five quick ones
  std::ifstream file(dir_ / "starts");
  for (int64_t time; file >> time;) starts.push_back(time);
  ASSERT_EQ(starts.size(), 6u);
  for (const auto& [life, least] : {std::pair(2, 20), {3, 40}, {4, 80}, {5, 80}}) {
    EXPECT_GE(starts[life] - starts[life - 1], least * int64_t{1000000}) << "life " << life;
  }
  const auto announced = [&](const std::string& delay) {
    return std::count_if(log_.begin(), log_.end(), [&](const std::string& line) {
      return line.find("starting it again in " + delay) != std::string::npos;
    });
  };
  EXPECT_EQ(announced("20 ms"), 1);
  EXPECT_EQ(announced("40 ms"), 1);
  EXPECT_EQ(announced("80 ms"), 2);
}

TEST_F(SupervisorTest, ContinuesWithoutAnOptionalWorkerThatKeepsDying) {
  UseServingChildren();
  options_.workers[1] = Child("draft", R"(echo "start $name" >> $journal
    if [ ! -e $folder/once ]; then touch $folder/once; echo "ready: $listen"
      while [ ! -e $folder/die ]; do sleep 0.02; done; fi
    exit 1)");
  options_.workers[1].optional = true;
  int given_up = 0;
  on_log_ = [&](const std::string& line) {
    if (line.find("serving goes on without it") != std::string::npos && ++given_up == 2) {
      supervisor_->Stop();
    }
  };
  RunUntilStopped([this] { std::ofstream(dir_ / "die") << "now"; });
  EXPECT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(given_up, 2);  // it was tried again after it had been given up
  EXPECT_EQ(CountInJournal("start draft"), 7);
}

TEST_F(SupervisorTest, AFailedFirstStartStopsEverything) {
  UseServingChildren();
  options_.workers[1] = Child("draft", "echo 'config.json: no such file' >&2; exit 1");
  options_.workers[1].optional = true;
  RunUntilStopped([] { FAIL() << "cannot be ready"; });
  EXPECT_THAT(std::string(status_.message()),
              HasSubstr("draft exited with status 1 before it was ready"));
  EXPECT_THAT(log_, Contains("draft: config.json: no such file"));
  EXPECT_THAT(JournalLines(), Not(Contains("start router")));
  EXPECT_TRUE(NoChildren());
}

TEST_F(SupervisorTest, AMissingExecutableIsNamed) {
  UseServingChildren();
  options_.workers[0].command = {"/nonexistent/tandem-verifier"};
  RunUntilStopped([] { FAIL() << "cannot be ready"; });
  EXPECT_THAT(std::string(status_.message()), HasSubstr("/nonexistent/tandem-verifier"));
  EXPECT_TRUE(NoChildren());
}

TEST_F(SupervisorTest, AChildThatNeverGetsReadyIsKilled) {
  UseServingChildren();
  options_.restart.start_timeout = milliseconds(50);
  options_.workers[0] = Child("verifier", "exec sleep 1000");
  RunUntilStopped([] { FAIL() << "cannot be ready"; });
  EXPECT_THAT(Log(), HasSubstr("verifier was not ready within 50 ms"));
  EXPECT_TRUE(NoChildren());
}

TEST_F(SupervisorTest, AChildThatIgnoresSigtermIsKilled) {
  UseServingChildren();
  options_.workers[0] = Child("verifier", R"(trap '' TERM; echo "ready: $listen"
    while :; do sleep 0.02; done)");
  options_.workers[0].stop_timeout = milliseconds(50);
  StopWhenReady();
  EXPECT_TRUE(status_.ok()) << status_;
  EXPECT_THAT(Log(), HasSubstr("verifier did not end within 50 ms of SIGTERM and is killed"));
  EXPECT_TRUE(NoChildren());
}

TEST_F(SupervisorTest, KillDoesNotWait) {
  UseServingChildren();
  const std::string stubborn =
      R"(trap '' TERM; echo "ready: $listen"; while :; do sleep 0.02; done)";
  options_.workers = {Child("verifier", stubborn), Child("draft", stubborn)};
  options_.router = Child("router", stubborn);
  for (ChildSpec* spec : {&options_.workers[0], &options_.workers[1], &options_.router}) {
    spec->stop_timeout = std::chrono::minutes(10);
  }
  RunUntilStopped([this] {
    supervisor_->Stop();
    supervisor_->Kill();
  });
  EXPECT_TRUE(status_.ok()) << status_;
  EXPECT_TRUE(NoChildren());
}

TEST_F(SupervisorTest, GrandchildrenDoNotOutliveAChild) {
  UseServingChildren();
  options_.workers[1] = Child("draft", R"(sleep 1000 & echo $! > $folder/grandchild
    echo "ready: $listen"; trap 'exit 0' TERM; while :; do sleep 0.02; done)");
  StopWhenReady();
  pid_t grandchild = 0;
  std::ifstream(dir_ / "grandchild") >> grandchild;
  ASSERT_GT(grandchild, 0);
  // The child got SIGKILL before its parent was reaped. Its new parent may still have to reap it.
  std::string state = "gone";
  for (int i = 0; i < 30000; ++i) {
    std::ifstream stat("/proc/" + std::to_string(grandchild) + "/stat");
    std::string id;
    std::string name;
    state = "gone";
    stat >> id >> name >> state;
    if (state == "gone" || state == "Z" || state == "X") break;
    usleep(1000);
  }
  EXPECT_THAT(state, ::testing::AnyOf("gone", "Z", "X"));
}

TEST_F(SupervisorTest, SocketsOfAKilledChildAreRemoved) {
  UseServingChildren();
  // The name of a socket stays if its owner is killed.
  options_.router = Child("router", R"sh(python3 -c "
import socket
socket.socket(socket.AF_UNIX).bind('$listen'[5:])"
    echo "ready: $listen"; trap '' TERM; while :; do sleep 0.02; done)sh");
  const fs::path socket = options_.router.listen.substr(5);
  bool existed = false;
  RunUntilStopped([&] {
    existed = fs::exists(socket);
    supervisor_->Kill();
  });
  EXPECT_TRUE(existed);
  EXPECT_FALSE(fs::exists(socket));
}

// Answers pings while it is allowed to.
class Health final : public v1::WorkerHealth::Service {
 public:
  grpc::Status Watch(grpc::ServerContext*,
                     grpc::ServerReaderWriter<v1::WatchPong, v1::WatchPing>* stream) override {
    v1::WatchPing ping;
    while (stream->Read(&ping)) {
      ++pings;
      v1::WatchPong pong;
      if (answers) stream->Write(pong);
    }
    return grpc::Status::OK;
  }

  std::atomic<bool> answers = true;
  std::atomic<int> pings = 0;
};

class HangingWorkerTest : public SupervisorTest {
 protected:
  // Both workers report an address at which this process answers for them.
  HangingWorkerTest() {
    grpc::ServerBuilder builder;
    const std::string address = "unix:" + (dir_ / "health").string();
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(&health_);
    server_ = builder.BuildAndStart();
    const std::string script =
        R"(echo "start $name" >> $journal; echo "ready: )" + address + R"("; exec sleep 1000)";
    options_.workers = {Child("verifier", script)};
    options_.router = Child("router", kServe);
  }

  Health health_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(HangingWorkerTest, AWorkerThatAnswersNoPingIsKilledAndStartedAgain) {
  options_.heartbeat_timeout_seconds = 2;
  on_log_ = [this](const std::string& line) {
    if (line.find("hangs") != std::string::npos) health_.answers = true;
    if (line == "tandem: verifier is back") supervisor_->Stop();
  };
  RunUntilStopped([this] { health_.answers = false; });
  EXPECT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(CountInJournal("start verifier"), 2);
  EXPECT_THAT(Log(), HasSubstr("tandem: verifier hangs: it gave no sign of life for 2 s, and is "
                               "killed"));
  EXPECT_TRUE(NoChildren());
}

TEST_F(HangingWorkerTest, AWorkerThatAnswersIsLeftAlone) {
  // A worker that did not answer would be killed long before the end. After a time in which this
  // process did not run, one second may seem silent.
  options_.heartbeat_timeout_seconds = 1.5;
  boost::asio::steady_timer timer(io_);
  RunUntilStopped([&] {
    timer.expires_after(std::chrono::seconds(4));
    timer.async_wait([this](const auto&) { supervisor_->Stop(); });
  });
  EXPECT_GE(health_.pings, 3);
  EXPECT_EQ(CountInJournal("start verifier"), 1);
}

TEST_F(SupervisorTest, LinesOfAChildAreWholeAndBounded) {
  UseServingChildren();
  options_.workers[0] = Child("verifier", R"(printf 'half ' >&2; printf 'line\n' >&2
    head -c 40000 /dev/zero | tr '\0' x >&2; echo >&2; printf 'no newline at the end' >&2
    echo "also said"; exit 1)");
  RunUntilStopped([] { FAIL() << "cannot be ready"; });
  EXPECT_THAT(log_, Contains("verifier: half line"));
  EXPECT_THAT(log_, Contains("verifier: no newline at the end"));
  EXPECT_THAT(log_, Contains("verifier: also said"));
  for (const std::string& line : log_) EXPECT_LT(line.size(), 20000u);
}

TEST_F(SupervisorTest, PiecesOfALongLineDoNotLookLikeLines) {
  UseServingChildren();
  // Text that a client may have written is at the beginning of the second piece, or at the end of
  // the line.
  options_.workers[0] = Child("verifier", R"({ head -c 16384 /dev/zero | tr '\0' x
    printf 'ready: 127.0.0.1:1\nnext\n'; head -c 16384 /dev/zero | tr '\0' y
    printf '\n\nlast\n'; } >&2
    { head -c 16384 /dev/zero | tr '\0' z; printf 'ready: 127.0.0.1:1\n'; }; exit 1)");
  RunUntilStopped([] { FAIL() << "cannot be ready"; });
  EXPECT_EQ(std::count(log_.begin(), log_.end(), "verifier: … (continued) ready: 127.0.0.1:1"), 2);
  EXPECT_THAT(log_, Not(Contains("verifier: ready: 127.0.0.1:1")));
  EXPECT_THAT(log_, Contains("verifier: next"));
  EXPECT_THAT(log_, Contains("verifier: " + std::string(16384, 'y')));
  EXPECT_EQ(std::count(log_.begin(), log_.end(), "verifier: "), 1) << "only the empty line";
  EXPECT_THAT(log_, Contains("verifier: last"));
}

}  // namespace
}  // namespace tandem::cli
