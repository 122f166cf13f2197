// Sends one request many times and counts the outputs, for tests of distributions. A client in
// Python would take most of the time of these tests. See --help.
#include <grpcpp/grpcpp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tandem/v1/generate.grpc.pb.h"

namespace {

struct Counts {
  std::map<std::vector<int32_t>, int64_t> outputs;  // by their first tokens
  std::map<int, int64_t> sources;                   // by TokenSource, of all tokens
  std::map<std::string, int64_t> accepted;          // draft tokens by drafter, of all tokens
};

// Draws outputs, one after the other, and counts them. The events of all drawers come through one
// queue to one thread: with a thread for each, much of the time goes into switching threads.
class Drawer {
 public:
  Drawer(tandem::v1::Generation::Stub& stub, const tandem::v1::GenerateRequest& request,
         size_t num_tokens, grpc::CompletionQueue& queue, Counts& counts)
      : stub_(stub), request_(request), num_tokens_(num_tokens), queue_(queue), counts_(counts) {}

  void Start() {
    token_ids_.clear();
    context_.emplace();
    context_->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    finishes_ = false;
    reader_ = stub_.AsyncGenerate(&*context_, request_, &queue_, this);
  }

  // Call this after each event of the queue whose tag is this object. Returns true at the end of
  // the stream. `status()` then says whether the output was counted.
  bool OnEvent(bool ok) {
    if (finishes_) {
      reader_.reset();
      if (!status_.ok()) return true;
      token_ids_.resize(std::min(token_ids_.size(), num_tokens_));
      ++counts_.outputs[token_ids_];
      return true;
    }
    if (!ok) {  // nothing is left to read, or there is no connection
      finishes_ = true;
      reader_->Finish(&status_, this);
      return false;
    }
    Count();
    response_.Clear();
    reader_->Read(&response_, this);
    return false;
  }

  const grpc::Status& status() const { return status_; }

 private:
  // Counts the last response, which is empty before the first one was read.
  void Count() {
    token_ids_.insert(token_ids_.end(), response_.token_ids().begin(), response_.token_ids().end());
    for (const int source : response_.sources()) ++counts_.sources[source];
    for (const tandem::v1::DrafterStats& drafter :
         response_.completion().speculation().drafters()) {
      counts_.accepted[drafter.name()] += drafter.num_accepted_tokens();
    }
  }

  tandem::v1::Generation::Stub& stub_;
  const tandem::v1::GenerateRequest& request_;
  const size_t num_tokens_;
  grpc::CompletionQueue& queue_;
  Counts& counts_;
  std::optional<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientAsyncReader<tandem::v1::GenerateResponse>> reader_;
  tandem::v1::GenerateResponse response_;
  std::vector<int32_t> token_ids_;
  bool finishes_ = false;
  grpc::Status status_;
};

// Draws `count` outputs, `concurrency` at a time. Returns the error of a stream that broke.
grpc::Status DrawAll(tandem::v1::Generation::Stub& stub, const tandem::v1::GenerateRequest& request,
                     size_t num_tokens, int64_t count, int64_t concurrency, Counts& counts) {
  grpc::CompletionQueue queue;
  std::vector<std::unique_ptr<Drawer>> drawers;
  grpc::Status failure;
  int64_t left = count;
  int64_t running = std::min(count, concurrency);
  for (int64_t i = 0; i < running; ++i, --left) {
    drawers.push_back(std::make_unique<Drawer>(stub, request, num_tokens, queue, counts));
    drawers.back()->Start();
  }
  void* tag = nullptr;
  bool ok = false;
  while (running > 0 && queue.Next(&tag, &ok)) {
    auto& drawer = *static_cast<Drawer*>(tag);
    if (!drawer.OnEvent(ok)) continue;
    if (!drawer.status().ok()) failure = drawer.status();
    if (failure.ok() && left > 0) {
      --left;
      drawer.Start();
    } else {
      --running;
    }
  }
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return failure;
}

}  // namespace

int main(int argc, char** argv) {
  std::string address;
  int64_t count = 0;
  int64_t concurrency = 16;
  size_t num_tokens = 0;
  CLI::App app(
      "Reads a GenerateRequest in the binary format of Protocol Buffers from standard input, sends "
      "it again and again, and prints as JSON how often each output began with the same tokens.");
  app.add_option("address", address, "Address of the router")->required();
  app.add_option("--count", count, "Number of outputs")->required();
  app.add_option("--concurrency", concurrency, "Number of requests that run at once");
  app.add_option("--tokens", num_tokens, "Number of first tokens that tell outputs apart")
      ->required();
  CLI11_PARSE(app, argc, argv);

  const std::string bytes{std::istreambuf_iterator<char>(std::cin), {}};
  tandem::v1::GenerateRequest request;
  if (!request.ParseFromString(bytes)) {
    std::cerr << "error: standard input is no GenerateRequest\n";
    return 2;
  }
  const auto stub = tandem::v1::Generation::NewStub(
      grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  Counts all;
  const grpc::Status failure = DrawAll(*stub, request, num_tokens, count, concurrency, all);
  if (!failure.ok()) {
    std::cerr << "error: " << failure.error_message() << "\n";
    return 1;
  }
  std::cout << nlohmann::json{{"outputs", all.outputs},
                              {"sources", all.sources},
                              {"accepted", all.accepted}}
            << "\n";
  return 0;
}
