// Sends one request many times and counts the outputs, for tests of distributions. A client in
// Python would take most of the time of these tests. See --help.
#include <grpcpp/grpcpp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tandem/v1/generate.grpc.pb.h"

namespace {

struct Counts {
  std::map<std::vector<int32_t>, int64_t> outputs;  // by their first tokens
  std::map<int, int64_t> sources;                   // by TokenSource, of all tokens
  std::map<std::string, int64_t> accepted;          // draft tokens by drafter, of all tokens
};

// Draws one output. Returns the error of the stream.
grpc::Status Draw(tandem::v1::Generation::Stub& stub, const tandem::v1::GenerateRequest& request,
                  size_t num_tokens, Counts& counts) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  const auto reader = stub.Generate(&context, request);
  tandem::v1::GenerateResponse response;
  std::vector<int32_t> token_ids;
  while (reader->Read(&response)) {
    token_ids.insert(token_ids.end(), response.token_ids().begin(), response.token_ids().end());
    for (const int source : response.sources()) ++counts.sources[source];
    for (const tandem::v1::DrafterStats& drafter : response.completion().speculation().drafters()) {
      counts.accepted[drafter.name()] += drafter.num_accepted_tokens();
    }
  }
  token_ids.resize(std::min(token_ids.size(), num_tokens));
  ++counts.outputs[token_ids];
  return reader->Finish();
}

}  // namespace

int main(int argc, char** argv) {
  std::string address;
  int64_t count = 0;
  size_t concurrency = 16;
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
  std::atomic<int64_t> left = count;
  std::mutex mutex;
  Counts all;
  grpc::Status failure;
  std::vector<std::thread> clients;
  for (size_t i = 0; i < concurrency; ++i) {
    clients.emplace_back([&] {
      Counts counts;
      grpc::Status status;
      while (status.ok() && --left >= 0) status = Draw(*stub, request, num_tokens, counts);
      if (!status.ok()) left = 0;
      const std::lock_guard lock(mutex);
      for (const auto& [tokens, number] : counts.outputs) all.outputs[tokens] += number;
      for (const auto& [source, number] : counts.sources) all.sources[source] += number;
      for (const auto& [drafter, number] : counts.accepted) all.accepted[drafter] += number;
      if (!status.ok()) failure = status;
    });
  }
  for (std::thread& client : clients) client.join();
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
