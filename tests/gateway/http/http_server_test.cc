// The server of HTTP over real sockets, before a service that answers when the test says so.
#include "services/gateway/http/http_server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/rpc/address.h"

namespace tandem::gateway {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Waits for a condition that other threads bring about.
void Await(const std::function<bool()>& condition, const char* what) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << what;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Keeps the requests of /wait, computes for a while for /work, and answers the others at once.
class WaitingService : public HttpService {
 public:
  std::optional<HttpAnswer> Refuse(const HttpRequest& head) override {
    if (head.path != "/refused") return std::nullopt;
    return ErrorAnswer(401, "no");
  }
  std::shared_ptr<Exchange> Answer(HttpRequest request, std::shared_ptr<Reply> reply) override {
    if (request.path == "/wait") {
      const std::lock_guard lock(mutex_);
      replies_.push_back(reply);
      return std::make_shared<Waiting>(this);
    }
    if (request.path == "/work") {
      most_working = std::max(most_working.load(), ++working);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      --working;
    }
    reply->Send(HttpAnswer());
    return nullptr;
  }
  HttpAnswer ErrorAnswer(int status, const std::string& message) override {
    HttpAnswer answer;
    answer.status = status;
    answer.body = message;
    return answer;
  }
  void OnAnswered(const AccessRecord& record) override {
    const std::lock_guard lock(mutex_);
    ++statuses_[record.status];
  }

  size_t num_waiting() {
    const std::lock_guard lock(mutex_);
    return replies_.size();
  }
  // Takes the oldest reply that waits.
  std::shared_ptr<Reply> TakeReply() {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Reply> reply = replies_.front();
    replies_.erase(replies_.begin());
    return reply;
  }
  int count(int status) {
    const std::lock_guard lock(mutex_);
    return statuses_[status];
  }

  std::atomic<int> num_gone = 0;
  std::atomic<int> working = 0;
  std::atomic<int> most_working = 0;

 private:
  class Waiting : public Exchange {
   public:
    explicit Waiting(WaitingService* service) : service_(*service) {}
    void OnGone() override { ++service_.num_gone; }

   private:
    WaitingService& service_;
  };

  std::mutex mutex_;
  std::vector<std::shared_ptr<Reply>> replies_;  // guarded by mutex_
  std::map<int, int> statuses_;                  // guarded by mutex_
};

// Calls `act` on the strand of the reply, and waits for it.
void OnStrand(Reply& reply, const std::function<void()>& act) {
  std::promise<void> done;
  asio::post(reply.executor(), [&] {
    act();
    done.set_value();
  });
  done.get_future().wait();
}

HttpAnswer AnswerOf(size_t size) {
  HttpAnswer answer;
  answer.body = std::string(size, 'a');
  return answer;
}

class HttpServerTest : public ::testing::Test {
 protected:
  ~HttpServerTest() override {
    if (server_ == nullptr) return;
    server_->Drain();
    server_->Close();
    for (std::thread& thread : threads_) thread.join();
  }

  void Start(const HttpLimits& limits) {
    auto server =
        HttpServer::Listen(io_, *Address::Parse("127.0.0.1:0"), nullptr, limits, &service_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    for (int i = 0; i < 2; ++i) threads_.emplace_back([this] { io_.run(); });
  }

  // A client of its own io_context, whose calls block.
  tcp::socket Connect() {
    tcp::socket socket(client_io_);
    socket.connect({asio::ip::make_address("127.0.0.1"), static_cast<uint16_t>(server_->port())});
    return socket;
  }
  static void Put(tcp::socket& socket, const std::string& bytes) {
    error_code ignored;
    asio::write(socket, asio::buffer(bytes), ignored);
  }
  static std::string Post(const std::string& path, size_t size) {
    return "POST " + path + " HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(size) +
           "\r\n\r\n";
  }
  // Returns the status of the next answer, and 0 if the connection ends without one.
  static int Status(tcp::socket& socket) {
    std::string text;
    error_code error;
    asio::read_until(socket, asio::dynamic_buffer(text), "\r\n\r\n", error);
    return text.size() < 12 ? 0 : std::stoi(text.substr(9, 3));
  }

  WaitingService service_;
  asio::io_context io_;
  asio::io_context client_io_;
  std::unique_ptr<HttpServer> server_;
  std::vector<std::thread> threads_;
};

HttpLimits SmallLimits() {
  HttpLimits limits;
  limits.all_held_bytes = 100'000;
  limits.share_bytes = 1000;
  return limits;
}

TEST_F(HttpServerTest, ABodyCountsUntilItsRequestIsAnswered) {
  Start(SmallLimits());
  tcp::socket one = Connect();
  Put(one, Post("/wait", 80'000) + std::string(80'000, 'a'));
  Await([&] { return service_.num_waiting() == 1; }, "the request waits");
  tcp::socket two = Connect();
  Put(two, Post("/any", 80'000) + std::string(80'000, 'a'));
  EXPECT_EQ(Status(two), 503);
  tcp::socket small = Connect();
  Put(small, Post("/any", 1000) + std::string(1000, 'a'));
  EXPECT_EQ(Status(small), 200) << "it has a share of its own";
  const std::shared_ptr<Reply> reply = service_.TakeReply();
  OnStrand(*reply, [&] { reply->Send(HttpAnswer()); });
  EXPECT_EQ(Status(one), 200);
  Await([&] { return service_.count(200) == 2; }, "the answers are written");
  tcp::socket three = Connect();
  Put(three, Post("/any", 80'000) + std::string(80'000, 'a'));
  EXPECT_EQ(Status(three), 200);
}

TEST_F(HttpServerTest, ABodyOfAClientThatLeavesCountsNoLonger) {
  Start(SmallLimits());
  {
    tcp::socket one = Connect();
    Put(one, Post("/wait", 80'000) + std::string(80'000, 'a'));
    Await([&] { return service_.num_waiting() == 1; }, "the request waits");
  }
  Await([&] { return service_.num_gone == 1; }, "the client has left");
  service_.TakeReply();
  Await([&] { return server_->num_connections() == 0; }, "the connection has ended");
  tcp::socket two = Connect();
  Put(two, Post("/any", 80'000) + std::string(80'000, 'a'));
  EXPECT_EQ(Status(two), 200);
}

TEST_F(HttpServerTest, AnAnswerThatIsCollectedHasLimits) {
  HttpLimits limits = SmallLimits();
  limits.answer_bytes = 70'000;
  Start(limits);
  tcp::socket one = Connect();
  tcp::socket two = Connect();
  for (tcp::socket* socket : {&one, &two}) Put(*socket, Post("/wait", 0));
  Await([&] { return service_.num_waiting() == 2; }, "the requests wait");
  const std::shared_ptr<Reply> first = service_.TakeReply();
  const std::shared_ptr<Reply> second = service_.TakeReply();
  OnStrand(*first, [&] {
    EXPECT_TRUE(first->Keep(60'000).ok());
    EXPECT_EQ(first->Keep(20'000).code(), absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(first->Keep(10'000).ok()) << "what was refused does not count";
  });
  OnStrand(*second, [&] {
    EXPECT_EQ(second->Keep(50'000).code(), absl::StatusCode::kUnavailable);
    second->Send(AnswerOf(50'000));
  });
  Await([&] { return service_.count(503) == 1; }, "it has no room either");
  OnStrand(*first, [&] { first->Send(AnswerOf(70'000)); });
  Await([&] { return service_.count(200) == 1; }, "it was counted already");
}

TEST_F(HttpServerTest, ALargeBodyThatStallsIsGivenUp) {
  HttpLimits limits = SmallLimits();
  limits.body_window_seconds = 0.1;
  limits.request_seconds = 600;
  Start(limits);
  tcp::socket small = Connect();
  Put(small, Post("/any", 1000) + std::string(900, 'a'));
  tcp::socket large = Connect();
  Put(large, Post("/any", 90'000) + std::string(60'000, 'a'));
  EXPECT_EQ(Status(large), 408);
  Put(small, std::string(100, 'a'));
  EXPECT_EQ(Status(small), 200) << "a small one may take its time";
}

TEST_F(HttpServerTest, AClientThatLeavesBehindManyRequestsIsNoticed) {
  HttpLimits limits;
  limits.header_bytes = 2000;
  limits.broken_look_seconds = 0.05;
  Start(limits);
  {
    tcp::socket one = Connect();
    std::string many = Post("/wait", 0);
    for (int i = 0; i < 200; ++i) many += Post("/any", 0);
    Put(one, many);
    Await([&] { return service_.num_waiting() == 1; }, "the request waits");
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_EQ(service_.num_gone, 0) << "a client that is there stays";
  }
  Await([&] { return service_.num_gone == 1; }, "the client has left");
  service_.TakeReply();
}

TEST_F(HttpServerTest, ManyRequestsAtOnceAreAllAnswered) {
  HttpLimits limits;
  limits.header_bytes = 2000;
  limits.broken_look_seconds = 0.05;
  Start(limits);
  tcp::socket one = Connect();
  std::string many = Post("/wait", 0);
  for (int i = 0; i < 200; ++i) many += Post("/any", 3) + "abc";
  Put(one, many);
  Await([&] { return service_.num_waiting() == 1; }, "the request waits");
  std::this_thread::sleep_for(std::chrono::milliseconds(120));
  const std::shared_ptr<Reply> reply = service_.TakeReply();
  OnStrand(*reply, [&] { reply->Send(HttpAnswer()); });
  Await([&] { return service_.count(200) == 201; }, "all are answered");
}

TEST_F(HttpServerTest, LargeBodiesLeaveAThreadForOthers) {
  Start(HttpLimits());
  std::vector<tcp::socket> large;
  for (int i = 0; i < 4; ++i) {
    large.push_back(Connect());
    Put(large.back(), Post("/work", 100'000) + std::string(100'000, 'a'));
  }
  Await([&] { return service_.working > 0; }, "a large body is worked on");
  tcp::socket small = Connect();
  Put(small, Post("/any", 1) + "a");
  EXPECT_EQ(Status(small), 200);
  EXPECT_LT(service_.count(200), 4) << "it did not wait for all of them";
  for (tcp::socket& socket : large) EXPECT_EQ(Status(socket), 200);
  EXPECT_EQ(service_.most_working, 1);
}

TEST_F(HttpServerTest, ARefusalReachesAClientThatStillSends) {
  Start(HttpLimits());
  for (int i = 0; i < 20; ++i) {
    tcp::socket one = Connect();
    Put(one, Post("/refused", 4 << 20) + std::string(4 << 20, 'a'));
    EXPECT_EQ(Status(one), 401);
  }
}

}  // namespace
}  // namespace tandem::gateway
