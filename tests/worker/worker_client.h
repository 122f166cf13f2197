// Runs workers in the test's own process and talks to them over real gRPC Unix sockets.
#ifndef TANDEM_TESTS_WORKER_WORKER_CLIENT_H_
#define TANDEM_TESTS_WORKER_WORKER_CLIENT_H_

#include <grpcpp/completion_queue.h>

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/rpc/async_tag.h"
#include "common/rpc/client_stream.h"
#include "common/rpc/worker_channel.h"
#include "services/worker/session/worker_server.h"

namespace tandem::testing {

// Serves in a thread until the object is destroyed.
class RunningServer {
 public:
  explicit RunningServer(std::unique_ptr<WorkerServer> server)
      : server_(std::move(server)), thread_([this] { server_->Run(); }) {}
  ~RunningServer() {
    server_->Stop();
    thread_.join();
  }
  const std::string& address() const { return server_->address(); }
  WorkerServer& server() { return *server_; }

 private:
  std::unique_ptr<WorkerServer> server_;
  std::thread thread_;
};

// A router's end of one session, with blocking calls. Throws std::runtime_error if nothing arrives
// within 20 s.
template <typename Service, typename Command, typename Reply>
class WorkerClient {
 public:
  explicit WorkerClient(const std::string& address)
      : channel_(ConnectWorker(*Address::Parse(address))), stub_(Service::NewStub(channel_)) {
    stream_.Start([this](grpc::ClientContext* context) {
      return stub_->PrepareAsyncSession(context, &queue_);
    });
  }
  ~WorkerClient() {
    if (!closed_) {
      stream_.Cancel();
      while (!closed_) Poll();
    }
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) static_cast<AsyncTag*>(tag)->Proceed(ok);
  }

  void Send(Command command) {
    command.set_id(++last_id_);
    stream_.Write(std::move(command));
  }
  // Returns the next message.
  Reply Receive() {
    while (replies_.empty()) {
      if (closed_) throw std::runtime_error("closed: " + status_.error_message());
      Poll();
    }
    Reply reply = std::move(replies_.front());
    replies_.pop_front();
    return reply;
  }
  Reply Call(Command command) {
    Send(std::move(command));
    return Receive();
  }

  // Sends and takes what there is, for at most a millisecond. This is for a client whose answer is
  // not there yet.
  void PollBriefly() {
    void* tag = nullptr;
    bool ok = false;
    const auto deadline = std::chrono::system_clock::now() + std::chrono::milliseconds(1);
    if (queue_.AsyncNext(&tag, &ok, deadline) != grpc::CompletionQueue::GOT_EVENT) return;
    static_cast<AsyncTag*>(tag)->Proceed(ok);
  }

  // Waits for the server's status.
  grpc::Status WaitClosed() {
    while (!closed_) Poll();
    return status_;
  }

  uint64_t last_id() const { return last_id_; }

 private:
  void Poll() {
    void* tag = nullptr;
    bool ok = false;
    const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(20);
    if (queue_.AsyncNext(&tag, &ok, deadline) != grpc::CompletionQueue::GOT_EVENT) {
      throw std::runtime_error("the worker says nothing");
    }
    static_cast<AsyncTag*>(tag)->Proceed(ok);
  }

  grpc::CompletionQueue queue_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<typename Service::Stub> stub_;
  std::deque<Reply> replies_;
  grpc::Status status_;
  bool closed_ = false;
  uint64_t last_id_ = 0;
  ClientStream<Command, Reply> stream_{
      [this](Reply& reply) { replies_.push_back(std::move(reply)); },
      [this](const grpc::Status& status) {
        closed_ = true;
        status_ = status;
      }};
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_WORKER_WORKER_CLIENT_H_
