// Tests heartbeats and leases over real gRPC. The test decides how long the handler computes.
#include "services/worker/session/session_server.h"

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <thread>

#include "common/rpc/worker_channel.h"
#include "tandem/v1/worker.grpc.pb.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/worker_client.h"

namespace tandem {
namespace {

using Client = testing::WorkerClient<v1::DraftWorker, v1::DraftCommand, v1::DraftReply>;
using Server = SessionServer<v1::DraftWorker, v1::DraftCommand, v1::DraftReply>;
using std::chrono::milliseconds;

constexpr uint64_t kToken = 77;

// The state that the handlers of a test share.
struct Work {
  std::atomic<int> sessions = 0;
  std::atomic<bool> hold = false;  // a Propose lasts until this is false
  std::atomic<int> proposals = 0;  // number of Proposes that have begun
  std::atomic<uint64_t> progress = 0;
};

class Handler final : public SessionHandler<v1::DraftCommand, v1::DraftReply> {
 public:
  explicit Handler(Work* work) : work_(work) { ++work_->sessions; }
  ~Handler() override { --work_->sessions; }

  absl::Status Handle(const v1::DraftCommand& command, const Emit& emit) override {
    if (command.has_propose()) ++work_->proposals;
    while (command.has_propose() && work_->hold) std::this_thread::sleep_for(milliseconds(1));
    v1::DraftReply reply;
    reply.set_id(command.id());
    if (command.has_attach()) {
      reply.mutable_attach();
    } else {
      reply.mutable_propose();
    }
    emit(std::move(reply));
    return absl::OkStatus();
  }

 private:
  Work* work_;
};

// Pings one worker over its own connection.
class Watch {
 public:
  explicit Watch(const std::string& address)
      : stub_(v1::WorkerHealth::NewStub(ConnectWorker(*Address::Parse(address)))),
        stream_(stub_->Watch(&context_)) {}
  ~Watch() {
    context_.TryCancel();
    stream_->Finish();
  }
  v1::WatchPong Ping(uint64_t token) {
    v1::WatchPing ping;
    ping.set_session_token(token);
    v1::WatchPong pong;
    EXPECT_TRUE(stream_->Write(ping));
    EXPECT_TRUE(stream_->Read(&pong));
    return pong;
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<v1::WorkerHealth::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WatchPing, v1::WatchPong>> stream_;
};

class SessionServerTest : public ::testing::Test {
 protected:
  void Start(double lease_seconds) {
    server_ = std::make_unique<testing::RunningServer>(*Server::Start(
        *Address::Parse("unix:" + (dir_ / "w.sock").string()),
        [this](const v1::Attach&) { return [this] { return std::make_unique<Handler>(&work_); }; },
        [this] { return work_.progress + 0; }, lease_seconds));
  }
  std::unique_ptr<Client> Attach(uint64_t token) {
    auto client = std::make_unique<Client>(server_->address());
    v1::DraftCommand command;
    command.mutable_attach()->set_session_token(token);
    lease_seconds_ = client->Call(command).attach().lease_seconds();
    return client;
  }
  // Runs in its own thread, because a client that is not polled does not send either. Returns false
  // if the session ended first.
  static std::future<bool> Propose(Client& client) {
    return std::async(std::launch::async, [&client] {
      v1::DraftCommand command;
      command.mutable_propose();
      try {
        return client.Call(command).has_propose();
      } catch (const std::exception&) {
        return false;
      }
    });
  }
  bool NoSessionWithin(milliseconds time) {
    const auto deadline = std::chrono::steady_clock::now() + time;
    while (work_.sessions > 0) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }

  testing::TempDir dir_;
  Work work_;
  std::unique_ptr<testing::RunningServer> server_;
  double lease_seconds_ = 0;
};

TEST_F(SessionServerTest, PingsAreAnsweredWhileACommandIsComputed) {
  Start(5);
  const auto client = Attach(kToken);
  EXPECT_EQ(lease_seconds_, 5);
  Watch watch(server_->address());
  // The attach is computed too, and may not have ended when its reply is here.
  while (watch.Ping(kToken).computing()) std::this_thread::sleep_for(milliseconds(1));
  work_.hold = true;
  auto proposed = Propose(*client);
  while (!watch.Ping(kToken).computing()) {
  }
  for (uint64_t progress = 1; progress < 100; ++progress) {
    work_.progress = progress;
    EXPECT_EQ(watch.Ping(kToken).progress(), progress);
  }
  work_.hold = false;
  EXPECT_TRUE(proposed.get());
  while (watch.Ping(kToken).computing()) {  // the reply is sent before the command is done
  }
}

TEST_F(SessionServerTest, PongsReportTheLoadOfTheWorker) {
  Start(5);
  Watch watch(server_->address());
  EXPECT_FALSE(watch.Ping(kToken).has_num_open_slots());
  server_->server().ReportLoad(3, 70000);
  EXPECT_EQ(watch.Ping(kToken).num_open_slots(), 3);
  EXPECT_EQ(watch.Ping(kToken).num_free_pages(), 70000);
}

TEST_F(SessionServerTest, EveryPongReportsADrainWhichLastsUntilNoSlotIsOpen) {
  Start(5);
  Watch watch(server_->address());
  WorkerServer& server = server_->server();
  server.ReportLoad(1, 0);
  EXPECT_FALSE(watch.Ping(kToken).draining());
  auto drained = std::async(std::launch::async, [&server] { server.AwaitDrain(); });
  while (!watch.Ping(kToken).draining()) {
  }
  server.ReportLoad(2, 0);
  EXPECT_EQ(drained.wait_for(milliseconds(50)), std::future_status::timeout);
  server.ReportLoad(0, 0);
  drained.wait();
  EXPECT_TRUE(watch.Ping(kToken).draining());
}

TEST_F(SessionServerTest, ADrainThatIsHurriedLeavesSlotsOpen) {
  Start(5);
  WorkerServer& server = server_->server();
  server.ReportLoad(1, 0);
  auto drained = std::async(std::launch::async, [&server] { server.AwaitDrain(); });
  EXPECT_EQ(drained.wait_for(milliseconds(50)), std::future_status::timeout);
  server.HurryDrain();
  drained.wait();
}

TEST_F(SessionServerTest, ASessionThatIsNoLongerPingedEndsAndFreesWhatItHeld) {
  using Clock = std::chrono::steady_clock;
  constexpr milliseconds kLease(300);
  Start(0.3);
  const auto other = Attach(kToken + 1);
  Watch watch(server_->address());
  std::unique_ptr<Client> client;
  int sessions = 0;
  // On a busy machine, two pings may be further apart than the lease. Then it is tried again.
  for (bool in_time = false; !in_time;) {
    client.reset();
    while (work_.sessions > 1) std::this_thread::sleep_for(milliseconds(1));
    client = Attach(kToken);
    in_time = true;
    const auto start = Clock::now();
    for (auto sent = start; in_time && sent < start + 2 * kLease;) {
      const auto sent_before = sent;
      sent = Clock::now();
      watch.Ping(kToken);
      sessions = work_.sessions;
      in_time = Clock::now() < sent_before + kLease;
    }
  }
  EXPECT_EQ(sessions, 2) << "pinged, or never";
  EXPECT_EQ(client->WaitClosed().error_code(), grpc::StatusCode::CANCELLED);
  while (work_.sessions > 1) std::this_thread::sleep_for(milliseconds(1));
  v1::DraftCommand command;
  command.mutable_propose();
  EXPECT_TRUE(other->Call(command).has_propose());
}

TEST_F(SessionServerTest, ALeaseEndsAfterTheCurrentCommand) {
  Start(0.05);
  const auto client = Attach(kToken);
  Watch watch(server_->address());
  work_.hold = true;
  auto proposed = Propose(*client);
  // The lease begins with the first ping.
  while (work_.proposals == 0) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(watch.Ping(kToken).computing());
  EXPECT_FALSE(NoSessionWithin(milliseconds(200)));
  work_.hold = false;
  EXPECT_TRUE(NoSessionWithin(milliseconds(30000)));
  proposed.wait();
}

TEST_F(SessionServerTest, ASessionWhoseStreamBreaksEndsAtOnce) {
  Start(60);
  auto client = Attach(kToken);
  Watch(server_->address()).Ping(kToken);
  client.reset();
  EXPECT_TRUE(NoSessionWithin(milliseconds(30000)));
}

TEST_F(SessionServerTest, StopsWhileWatchersAndLeasesAreOpen) {
  Start(60);
  const auto client = Attach(kToken);
  Watch watch(server_->address());
  watch.Ping(kToken);
  server_.reset();
  EXPECT_EQ(work_.sessions, 0);
}

}  // namespace
}  // namespace tandem
