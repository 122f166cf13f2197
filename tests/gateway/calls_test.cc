// The client of the router, over a socket, with a router of the test's own.
#include <grpcpp/security/credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "services/gateway/calls/router_client.h"
#include "tandem/v1/generate.grpc.pb.h"

namespace tandem::gateway {
namespace {

namespace asio = boost::asio;
using std::chrono::seconds;

constexpr seconds kPatience{20};

class OneMessageRouter final : public v1::Generation::Service {
  grpc::Status Generate(grpc::ServerContext* /*context*/, const v1::GenerateRequest* /*request*/,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    writer->Write(v1::GenerateResponse());
    return grpc::Status::OK;
  }
  grpc::Status GetServerInfo(grpc::ServerContext* /*context*/,
                             const v1::GetServerInfoRequest* /*request*/,
                             v1::ServerInfo* /*info*/) override {
    return grpc::Status::OK;
  }
};

// Takes as long as `waits_for` in its first message.
class SlowListener final : public StreamListener {
 public:
  explicit SlowListener(std::shared_future<void> waits_for) : waits_for_(std::move(waits_for)) {}

  std::shared_ptr<GenerateStream> stream;  // used on the strand
  std::promise<void> begun;
  std::promise<bool> was_in_time;
  std::promise<void> ended;

  void OnMessage(size_t /*choice*/, const v1::GenerateResponse& /*message*/) override {
    begun.set_value();
    was_in_time.set_value(waits_for_.wait_for(kPatience) == std::future_status::ready);
    stream->Next();
  }
  void OnEnd(size_t /*choice*/, const CallEnd& /*end*/) override {
    stream.reset();
    ended.set_value();
  }

 private:
  std::shared_future<void> waits_for_;
};

class CallsTest : public testing::Test {
 protected:
  void SetUp() override {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&router_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    client_.emplace(RouterAddress{.address = "127.0.0.1:" + std::to_string(port),
                                  .credentials = grpc::InsecureChannelCredentials(),
                                  .token = ""},
                    io_);
    for (int i = 0; i < 3; ++i) threads_.emplace_back([this] { io_.run(); });
  }
  void TearDown() override {
    client_->Close();
    for (std::thread& thread : threads_) thread.join();
    server_->Shutdown();
  }

  OneMessageRouter router_;
  std::unique_ptr<grpc::Server> server_;
  asio::io_context io_;
  std::optional<RouterClient> client_;
  std::vector<std::thread> threads_;
};

TEST_F(CallsTest, ASlowMessageOfOneCallDelaysNoOtherCall) {
  std::promise<void> answered;
  const auto slow = std::make_shared<SlowListener>(answered.get_future().share());
  const asio::any_io_executor strand = asio::make_strand(io_);
  asio::post(strand, [&] {
    slow->stream = client_->Generate(strand, v1::GenerateRequest(), CallMetadata(), 0, slow);
  });
  ASSERT_EQ(slow->begun.get_future().wait_for(kPatience), std::future_status::ready);
  const asio::any_io_executor other = asio::make_strand(io_);
  asio::post(other, [&] {
    client_->AskInfo(other, CallMetadata(),
                     [&](const CallEnd&, const v1::ServerInfo&) { answered.set_value(); });
  });
  EXPECT_TRUE(slow->was_in_time.get_future().get());
  EXPECT_EQ(slow->ended.get_future().wait_for(kPatience), std::future_status::ready);
}

}  // namespace
}  // namespace tandem::gateway
