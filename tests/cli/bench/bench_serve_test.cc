// Tests `tandem bench serve`: its requests, its numbers, and whole runs against a server in this
// process.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <limits>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "services/cli/bench/serve/bench_serve_command.h"
#include "services/cli/bench/serve/bench_serve_load.h"
#include "services/cli/bench/serve/bench_serve_report.h"
#include "services/cli/bench/serve/bench_serve_workload.h"
#include "services/cli/bench/serve/process_usage.h"
#include "services/cli/run.h"
#include "tandem/v1/generate.grpc.pb.h"
#include "tests/support/temp_dir.h"

namespace tandem::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Lt;
using ::testing::Not;

// ---------------------------------------------------------------- requests

Workload::Corpus TwoPrompts() {
  Workload::Corpus corpus{.beginning = {99}, .prompts = {{}, {}}};
  for (int i = 0; i < 40; ++i) corpus.prompts[static_cast<size_t>(i) / 20].push_back(i);
  return corpus;
}

Workload MakeWorkload(const BenchServeOptions& options, int max_context = 1024) {
  auto workload = Workload::Create(options, TwoPrompts(), max_context);
  EXPECT_TRUE(workload.ok()) << workload.status();
  return *std::move(workload);
}

std::vector<int32_t> PromptOf(const PlannedRequest& planned) {
  const auto& ids = planned.request.prompt_token_ids().ids();
  return {ids.begin(), ids.end()};
}

BenchServeOptions OfLengths(const std::string& prompt, const std::string& output) {
  BenchServeOptions options;
  options.prompt_length = *LengthDistribution::Parse(prompt);
  options.output_length = *LengthDistribution::Parse(output);
  return options;
}

TEST(WorkloadTest, ARequestDependsOnlyOnSeedAndNumber) {
  const BenchServeOptions options = OfLengths("uniform:10-60", "uniform:1-100");
  const Workload workload = MakeWorkload(options);
  const Workload again = MakeWorkload(options);
  again.Plan(3, "greedy", "off");
  EXPECT_EQ(workload.Plan(7, "greedy", "auto").request.SerializeAsString(),
            again.Plan(7, "greedy", "auto").request.SerializeAsString());
  EXPECT_NE(PromptOf(workload.Plan(7, "greedy", "auto")),
            PromptOf(workload.Plan(8, "greedy", "auto")));
  // Everything that is compared gets the same prompts, lengths and seeds.
  const PlannedRequest off = workload.Plan(7, "sampled", "off");
  const PlannedRequest on = workload.Plan(7, "sampled", "on");
  EXPECT_EQ(PromptOf(off), PromptOf(on));
  EXPECT_EQ(off.request.sampling_params().SerializeAsString(),
            on.request.sampling_params().SerializeAsString());
  BenchServeOptions other = options;
  other.seed = 2;
  EXPECT_NE(PromptOf(MakeWorkload(other).Plan(7, "greedy", "auto")),
            PromptOf(workload.Plan(7, "greedy", "auto")));
}

TEST(WorkloadTest, ModesAndDraftingSetTheirParameters) {
  const Workload workload = MakeWorkload({});
  const auto request = [&](const std::string& mode, const std::string& drafting) {
    return workload.Plan(0, mode, drafting).request;
  };
  EXPECT_FLOAT_EQ(request("greedy", "off").sampling_params().temperature(), 0);
  EXPECT_FLOAT_EQ(request("sampled", "off").sampling_params().temperature(), 1);
  EXPECT_FALSE(request("sampled", "off").speculation().reproducible());
  EXPECT_TRUE(request("reproducible", "off").speculation().reproducible());
  EXPECT_FALSE(request("greedy", "off").speculation().enabled());
  EXPECT_TRUE(request("greedy", "auto").speculation().enabled());
  EXPECT_FALSE(request("greedy", "auto").speculation().has_draft_length());
  EXPECT_EQ(request("greedy", "on").speculation().draft_length(), 4);
  EXPECT_TRUE(request("greedy", "on").sampling_params().ignore_eos());
}

TEST(WorkloadTest, PromptsAreThoseOfTheFileUnlessALengthIsAskedFor) {
  EXPECT_EQ(PromptOf(MakeWorkload({}).Plan(1, "greedy", "off")).size(), 21u);
  const std::vector<int32_t> first = PromptOf(MakeWorkload({}).Plan(0, "greedy", "off"));
  EXPECT_EQ(first[0], 99);
  EXPECT_EQ(first[1], 0);
  const PlannedRequest drawn =
      MakeWorkload(OfLengths("fixed:50", "fixed:8")).Plan(0, "greedy", "off");
  EXPECT_EQ(PromptOf(drawn).size(), 50u);
  EXPECT_EQ(PromptOf(drawn)[0], 99);
  EXPECT_EQ(drawn.request.sampling_params().max_tokens(), 8);
}

TEST(WorkloadTest, OnlyTheSharedPrefixIsShared) {
  BenchServeOptions options = OfLengths("fixed:100", "fixed:8");
  options.shared_prefix = 60;
  const Workload workload = MakeWorkload(options);
  const std::vector<int32_t> a = PromptOf(workload.Plan(0, "greedy", "off"));
  const std::vector<int32_t> b = PromptOf(workload.Plan(1, "greedy", "off"));
  ASSERT_EQ(a.size(), 100u);
  const auto difference = std::mismatch(a.begin(), a.end(), b.begin());
  // The next token is equal too by chance, once in forty cases.
  EXPECT_THAT(difference.first - a.begin(), AllOf(Ge(60), Le(64)));
}

// There are 40 * 9 ways to begin for 100 prompts. Without pieces there would be only 40.
TEST(WorkloadTest, PromptsOfADrawnLengthHardlyEverBeginWithTheSameTokens) {
  const Workload workload = MakeWorkload(OfLengths("fixed:32", "fixed:8"));
  std::set<std::vector<int32_t>> beginnings;
  for (uint64_t i = 0; i < 100; ++i) {
    std::vector<int32_t> ids = PromptOf(workload.Plan(i, "greedy", "off"));
    ids.resize(16);
    beginnings.insert(ids);
  }
  EXPECT_GE(beginnings.size(), 95u);
}

TEST(WorkloadTest, PromptAndOutputFitTheContext) {
  const Workload workload = MakeWorkload(OfLengths("lognormal:50,2", "lognormal:50,2"), 64);
  for (uint64_t i = 0; i < 200; ++i) {
    const PlannedRequest planned = workload.Plan(i, "greedy", "off");
    EXPECT_LE(PromptOf(planned).size() +
                  static_cast<size_t>(planned.request.sampling_params().max_tokens()),
              64u);
  }
  BenchServeOptions options;
  options.shared_prefix = 64;
  EXPECT_THAT(std::string(Workload::Create(options, TwoPrompts(), 64).status().message()),
              HasSubstr("--shared-prefix: got 64"));
}

// The number is binomial with mean 300 and deviation 14.5. The limit of 90 is 6.2 deviations.
TEST(WorkloadTest, TheRequestedShareOfClientsLeaves) {
  BenchServeOptions options = OfLengths("fixed:8", "fixed:100");
  options.cancel_fraction = 0.3;
  const Workload workload = MakeWorkload(options);
  int leave = 0;
  std::set<int> after;
  for (uint64_t i = 0; i < 1000; ++i) {
    const PlannedRequest planned = workload.Plan(i, "greedy", "off");
    if (planned.cancel_after_tokens < 0) continue;
    EXPECT_LT(planned.cancel_after_tokens, 100);
    after.insert(planned.cancel_after_tokens);
    ++leave;
  }
  EXPECT_THAT(leave, AllOf(Ge(210), Le(390)));
  EXPECT_GE(after.size(), 50u);
}

// ---------------------------------------------------------------- numbers

TEST(ProcessUsageTest, TimeSpentComputingCounts) {
  const CpuSeconds before = ReadCpuSeconds();
  volatile double sum = 0;
  while (ReadCpuSeconds().own < before.own + 0.05) {
    for (int i = 0; i < 100000; ++i) sum = sum + i;
  }
  EXPECT_GE(ReadCpuSeconds().machine, before.machine + 0.03);
}

ServeCell CellOf(int clients, double verify_seconds, double router_seconds) {
  ServeCell cell;
  cell.clients = clients;
  cell.mode = "greedy";
  cell.drafting = "off";
  cell.runs = 1;
  v1::Completion completion;
  completion.mutable_usage()->set_completion_tokens(10);
  completion.mutable_timings()->set_verify_seconds(verify_seconds);
  completion.mutable_timings()->set_router_seconds(router_seconds);
  completion.mutable_timings()->set_decode_seconds(verify_seconds + router_seconds);
  cell.result.totals.Add(completion);
  cell.result.finished = 1;
  cell.result.tokens = 10;
  cell.result.wall_seconds = 2;
  cell.result.first_token = {0.25};
  cell.cpu.machine = 1;
  cell.cpu.own = 0.2;
  return cell;
}

TEST(ServeReportTest, TheLimitIsNamed) {
  ServeContext context;
  context.cores = 2;
  context.server.set_max_slots(8);
  EXPECT_THAT(LimitOf(CellOf(8, 0.9, 0.1), context),
              AllOf(HasSubstr("compute:"), HasSubstr("verifier 90 %"), HasSubstr("25 % busy")));
  EXPECT_THAT(LimitOf(CellOf(8, 0.5, 0.5), context), HasSubstr("latency:"));
  EXPECT_THAT(LimitOf(CellOf(16, 0.5, 0.5), context), HasSubstr("slots or arrivals:"));
  ServeCell busy = CellOf(8, 0.5, 0.5);
  busy.cpu.machine = 3.8;
  EXPECT_THAT(LimitOf(busy, context), HasSubstr("cores:"));
}

TEST(ServeReportTest, RefusalsAreCountedBelowTheTableWithTheirTimes) {
  ServeCell cell = CellOf(8, 0.75, 0.25);
  const auto text = [&] { return RenderServeTable({cell}, ServeContext(), Palette(false)); };
  EXPECT_THAT(text(), Not(HasSubstr("refused")));
  cell.result.failures["RESOURCE_EXHAUSTED"] = 3;
  cell.result.refused = {0.001, 0.002, 0.003};
  EXPECT_THAT(text(),
              AllOf(HasSubstr("8, greedy, off: 3 × RESOURCE_EXHAUSTED\n"),
                    HasSubstr("8, greedy, off: refused after 2.00 ms (p50), 2.98 ms (p99)\n")));
}

TEST(ServeReportTest, JsonHasTheNumbers) {
  ServeContext context;
  context.cores = 2;
  context.target_weights = 100;
  ServeCell cell = CellOf(8, 0.75, 0.25);
  cell.result.failures["UNAVAILABLE"] = 3;
  cell.result.refused = {0.001, 0.002, 0.003};
  cell.result.prompt_tokens = 6;
  cell.result.cached_prompt_tokens = 1;
  cell.ratios = {1.25, 1.25};
  const nlohmann::json json = ServeToJson({cell, ServeCell()}, context);
  ASSERT_EQ(json["rows"].size(), 1u);  // the other cell did not run
  const nlohmann::json& row = json["rows"][0];
  EXPECT_DOUBLE_EQ(row["tokens_per_second"], 5);
  EXPECT_DOUBLE_EQ(row["utilization"]["verify"], 0.75);
  EXPECT_DOUBLE_EQ(row["utilization"]["cores_busy"], 0.25);
  EXPECT_DOUBLE_EQ(row["utilization"]["client"], 0.05);
  EXPECT_DOUBLE_EQ(row["time_to_first_token_seconds"]["p99"], 0.25);
  EXPECT_EQ(row["failures"]["UNAVAILABLE"], 3);
  EXPECT_EQ(row["refused_seconds"]["count"], 3);
  EXPECT_DOUBLE_EQ(row["refused_seconds"]["p50"], 0.002);
  EXPECT_DOUBLE_EQ(row["ratio_to_off"]["mean"], 1.25);
  // There are 5 prompt rows and 9 rounds in 2 s, with 2 operations for each weight.
  EXPECT_DOUBLE_EQ(row["target_flops"], 2 * 100 * 7.0);
}

// ---------------------------------------------------------------- against a server

// Answers every request with the requested number of tokens, in messages of two tokens. The first
// token has its own message.
class CountingServer final : public v1::Generation::Service {
 public:
  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(*request);
      peers_.insert(context->peer());
      const auto tenant = context->client_metadata().find("tandem-tenant");
      if (tenant != context->client_metadata().end()) {
        tenants_.insert(std::string(tenant->second.data(), tenant->second.size()));
      }
      most_open_ = std::max(most_open_, ++open_);
    }
    const grpc::Status status = Answer(context, *request, writer);
    const std::lock_guard lock(mutex_);
    --open_;
    return status;
  }

  grpc::Status Tokenize(grpc::ServerContext* /*context*/, const v1::TokenizeRequest* request,
                        v1::TokenizeResponse* response) override {
    if (request->add_special_tokens()) response->add_ids(9);
    for (int i = 0; i < 20; ++i) response->add_ids(i);
    return grpc::Status::OK;
  }

  grpc::Status GetServerInfo(grpc::ServerContext* /*context*/,
                             const v1::GetServerInfoRequest* /*request*/,
                             v1::ServerInfo* info) override {
    info->set_model("big");
    info->set_draft_model("small");
    info->set_drafter_attached(drafter_attached_);
    info->set_max_context_tokens(1024);
    info->set_max_slots(8);
    return grpc::Status::OK;
  }

  std::vector<v1::GenerateRequest> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  size_t num_tenants() {
    const std::lock_guard lock(mutex_);
    return tenants_.size();
  }
  // Returns the number of TCP connections that requests came from.
  size_t num_peers() {
    const std::lock_guard lock(mutex_);
    return peers_.size();
  }
  int most_open() {
    const std::lock_guard lock(mutex_);
    return most_open_;
  }

  std::atomic<int> refuse_first_ = 0;  // number of calls to refuse first, with a time to come back
  std::atomic<bool> endless_ = false;
  bool drafter_attached_ = true;

 private:
  grpc::Status Answer(grpc::ServerContext* context, const v1::GenerateRequest& request,
                      grpc::ServerWriter<v1::GenerateResponse>* writer) {
    if (refuse_first_.fetch_sub(1) > 0) {
      context->AddTrailingMetadata("grpc-retry-pushback-ms", "5");
      return {grpc::StatusCode::RESOURCE_EXHAUSTED, "full"};
    }
    const int count = request.sampling_params().max_tokens();
    for (int sent = 0; sent < count;) {
      v1::GenerateResponse message;
      for (int i = sent == 0 ? 1 : 2; i > 0 && sent < count; --i, ++sent) message.add_token_ids(1);
      if (sent == count) Complete(request, count, message.mutable_completion());
      if (!writer->Write(message)) return grpc::Status::CANCELLED;
      if (endless_) {
        sent = std::min(sent, 10);
        std::this_thread::sleep_for(std::chrono::microseconds(200));  // the speed of a model
      }
      if (context->IsCancelled()) return grpc::Status::CANCELLED;
    }
    return grpc::Status::OK;
  }

  static void Complete(const v1::GenerateRequest& request, int count, v1::Completion* completion) {
    completion->mutable_usage()->set_prompt_tokens(request.prompt_token_ids().ids_size());
    completion->mutable_usage()->set_completion_tokens(count);
    completion->mutable_timings()->set_queue_seconds(0.002);
    completion->mutable_timings()->set_decode_seconds(0.01);
    completion->mutable_timings()->set_verify_seconds(0.008);
    if (!request.speculation().enabled()) return;
    completion->mutable_speculation()->set_num_drafts(2);
    completion->mutable_speculation()->set_num_draft_tokens(8);
    completion->mutable_speculation()->set_num_accepted_tokens(6);
    completion->mutable_speculation()->set_num_tested_tokens(7);
  }

  std::mutex mutex_;
  std::vector<v1::GenerateRequest> requests_;
  std::set<std::string> tenants_;
  std::set<std::string> peers_;
  int open_ = 0;
  int most_open_ = 0;
};

class BenchServeTest : public ::testing::Test {
 protected:
  BenchServeTest() {
    address_ = "unix:" + (dir_ / "s.sock").string();
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }

  int Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"bench", "serve"});
    arguments.insert(arguments.end(), {"--connect", address_, "--json", json_path()});
    std::istringstream in;
    std::ostringstream out;
    std::ostringstream err;
    Console console = {.in = in, .out = out, .err = err};
    const int exit_code = cli::Run(arguments, console);
    out_ = out.str();
    err_ = err.str();
    return exit_code;
  }

  std::string json_path() { return (dir_ / "out.json").string(); }

  nlohmann::json Json() {
    std::ifstream file(json_path());
    return nlohmann::json::parse(file);
  }

  static PlannedRequest Ask(int tokens, int cancel_after_tokens = -1) {
    PlannedRequest planned{.request = {}, .cancel_after_tokens = cancel_after_tokens};
    planned.request.mutable_sampling_params()->set_max_tokens(tokens);
    return planned;
  }

  testing::TempDir dir_;
  std::string address_;
  int port_ = 0;
  CountingServer service_;
  std::unique_ptr<grpc::Server> server_;
  std::string out_;
  std::string err_;
};

TEST_F(BenchServeTest, EveryStepRunsInPairsWithTheSameRequests) {
  ASSERT_EQ(Run({"--clients", "1,3", "--pairs", "2", "--requests", "6", "--output-lengths", "9",
                 "--prompt-lengths", "uniform:5-30", "--modes", "greedy,sampled"}),
            kExitOk)
      << err_;
  const nlohmann::json json = Json();
  ASSERT_EQ(json["rows"].size(), 8u);
  for (const auto& row : json["rows"]) {
    const int requests = 2 * 6 * row["clients"].get<int>();
    EXPECT_EQ(row["requests"], requests);
    EXPECT_EQ(row["tokens"], requests * 9);
    EXPECT_EQ(row["runs"], 2);
    EXPECT_EQ(row["failures"].size(), 0u);
    EXPECT_GT(row["tokens_per_second"], 0);
    EXPECT_EQ(row["time_to_first_token_seconds"]["count"], requests);
    EXPECT_EQ(row["time_per_token_seconds"]["count"], requests);
    EXPECT_EQ(row["message_gap_seconds"]["count"], requests * 4);
    EXPECT_DOUBLE_EQ(row["queue_seconds"]["p50"], 0.002);
    EXPECT_DOUBLE_EQ(row["utilization"]["verify"], 1);
  }
  EXPECT_EQ(json["rows"][0]["clients"], 1);
  EXPECT_EQ(json["rows"][0]["drafting"], "auto");
  EXPECT_EQ(json["rows"][0]["ratio_to_off"]["pairs"], 2);
  EXPECT_DOUBLE_EQ(json["rows"][0]["acceptance_rate"], 0.75);
  EXPECT_FALSE(json["rows"][1].contains("ratio_to_off"));
  EXPECT_EQ(json["rows"][7]["mode"], "sampled");
  // Both kinds of drafting have the same set of prompts. The order of the ends is random.
  std::multiset<std::string> with, without;
  for (const v1::GenerateRequest& request : service_.requests()) {
    (request.speculation().enabled() ? with : without)
        .insert(request.prompt_token_ids().SerializeAsString());
  }
  EXPECT_EQ(with, without);
  EXPECT_EQ(service_.num_tenants(), 8u * 2 + 8);  // each run and each warm-up has its own tenant
  EXPECT_THAT(out_, AllOf(HasSubstr("tokens/s"), HasSubstr("limit at 3 clients:")));
  EXPECT_THAT(err_, HasSubstr("bench: 100 %"));
}

// The processor time is read before and after each of the two runs of a pair.
TEST_F(BenchServeTest, APairWithStolenTimeIsRunAgain) {
  int num_reads = 0;
  CpuSeconds now;
  const auto stolen_until = [&](int reads) {
    return [&num_reads, &now, reads] {
      now.machine += 0.9;
      now.stolen += num_reads++ < reads ? 0.1 : 0;
      return now;
    };
  };
  BenchServeOptions options;
  options.session.connect = address_;
  options.clients = {3};
  options.requests = 2;
  options.pairs = 2;
  options.output_length = LengthDistribution::Fixed(9);
  options.json = json_path();
  options.most_stolen = 0.05;
  options.read_cpu = stolen_until(8);  // time is stolen in the first two runs of the first pair
  std::istringstream in;
  std::ostringstream out, err;
  Console console = {.in = in, .out = out, .err = err};
  ASSERT_EQ(BenchServe(options, "", console), kExitOk) << err.str();
  for (const auto& row : Json()["rows"]) {
    EXPECT_EQ(row["runs"], 2);
    EXPECT_EQ(row["runs_set_aside"], 2);
    EXPECT_EQ(row["requests"], 2 * 6);
    EXPECT_EQ(row["cpu_seconds"]["stolen"], 0);
  }
  EXPECT_EQ(Json()["rows"][0]["ratio_to_off"]["pairs"], 2);
  EXPECT_THAT(out.str(), HasSubstr("2 runs set aside"));

  // If time is always stolen, a pair counts after twenty runs.
  options.pairs = 1;
  options.requests = 1;
  options.read_cpu = stolen_until(std::numeric_limits<int>::max());
  ASSERT_EQ(BenchServe(options, "", console), kExitOk) << err.str();
  EXPECT_EQ(Json()["rows"][0]["runs"], 1);
  EXPECT_EQ(Json()["rows"][0]["runs_set_aside"], 19);
  EXPECT_EQ(Json()["rows"][0]["ratio_to_off"]["pairs"], 1);
}

TEST_F(BenchServeTest, AClosedLoopNeverHasMoreOpenRequestsThanClients) {
  ASSERT_EQ(Run({"--clients", "4", "--pairs", "1", "--requests", "10", "--drafting", "off"}),
            kExitOk);
  EXPECT_EQ(Json()["rows"][0]["most_open"], 4);
  // A handler may still be returning when its client already has the status and sends the next
  // request.
  EXPECT_LE(service_.most_open(), 8);
}

TEST_F(BenchServeTest, ARunBySecondsEndsInTimeAndCountsItsTokens) {
  service_.endless_ = true;
  ASSERT_EQ(Run({"--clients", "2", "--pairs", "1", "--seconds", "1", "--drafting", "off"}),
            kExitOk);
  const nlohmann::json row = Json()["rows"][0];
  EXPECT_THAT(row["wall_seconds"].get<double>(), AllOf(Gt(0.1), Lt(20))) << "on a busy machine";
  EXPECT_GT(row["tokens"], 20);
  EXPECT_EQ(row["requests"], 0);
  EXPECT_EQ(row["failures"].size(), 0u);
}

// There are 100 arrivals per second for 0.5 s: 50 on average with a deviation of 7.1. Six
// deviations are allowed on both sides.
TEST_F(BenchServeTest, AnOpenLoopSendsAtRandomTimesWithTheRate) {
  nlohmann::json row;
  int num_runs = 0;
  do {  // what is due while the machine does other work at the end of a run is not sent any more
    ASSERT_EQ(Run({"--rate", "100", "--pairs", "1", "--seconds", "0.5", "--drafting", "off",
                   "--output-lengths", "3"}),
              kExitOk);
    row = Json()["rows"][0];
  } while (row["wall_seconds"].get<double>() > 0.52 && ++num_runs < 20);
  EXPECT_EQ(row["rate"], 100);
  EXPECT_FALSE(row.contains("clients"));
  EXPECT_THAT(row["requests"].get<int>(), AllOf(Ge(8), Le(93)));
}

TEST_F(BenchServeTest, RefusalsAreCountedByStatusAndTriedAgainAfterTheHint) {
  LoadClient client(address_, 2);
  LoadResult result;
  service_.refuse_first_ = 3;
  client.Run(
      {.clients = 1, .requests = 8}, [](uint64_t) { return Ask(4); }, [](double) { return true; },
      &result);
  EXPECT_EQ(result.failures["RESOURCE_EXHAUSTED"], 3);
  ASSERT_EQ(result.refused.size(), 3u);
  for (const double seconds : result.refused) {
    EXPECT_THAT(seconds, AllOf(Gt(0), Lt(result.wall_seconds)));
  }
  EXPECT_EQ(result.finished, 5);
  EXPECT_GE(result.wall_seconds, 0.014);  // three times 5 ms
  EXPECT_LT(result.wall_seconds, 30);
}

TEST_F(BenchServeTest, ClientsShareTheRequestedNumberOfConnections) {
  const auto peers = [&](int connections) {
    LoadClient client("127.0.0.1:" + std::to_string(port_), 4, {}, connections);
    LoadResult result;
    const size_t before = service_.num_peers();
    client.Run(
        {.clients = 4, .requests = 20}, [](uint64_t) { return Ask(4); },
        [](double) { return true; }, &result);
    EXPECT_EQ(result.finished, 20);
    return service_.num_peers() - before;
  };
  EXPECT_EQ(peers(1), 1u);
  EXPECT_EQ(peers(3), 3u);
}

TEST_F(BenchServeTest, ClientsThatLeaveDoNotCountAsFailures) {
  LoadClient client(address_, 4);
  LoadResult result;
  service_.endless_ = true;
  client.Run(
      {.clients = 4, .requests = 20},
      [](uint64_t index) { return Ask(100, index % 2 == 0 ? 0 : 5); }, [](double) { return true; },
      &result);
  EXPECT_EQ(result.canceled, 20);
  EXPECT_EQ(result.failures.size(), 0u);
}

TEST_F(BenchServeTest, InterruptingEndsARunAtOnce) {
  LoadClient client(address_, 2);
  LoadResult result;
  service_.endless_ = true;
  int calls = 0;
  client.Run(
      {.clients = 2, .seconds = 3600}, [](uint64_t) { return Ask(100); },
      [&](double) { return ++calls < 3; }, &result);
  EXPECT_GE(calls, 3);  // there are more if the canceled requests take long to end
  EXPECT_LT(result.wall_seconds, 30);
  EXPECT_GT(result.tokens, 0);
}

TEST_F(BenchServeTest, TheWarmUpDoesNotCount) {
  LoadClient client(address_, 2);
  LoadResult result;
  int64_t sent = 0;
  int64_t sent_before = 0;
  LoadStep step = {.clients = 2, .seconds = 0.5, .warm_up_seconds = 0.5};
  step.on_measured = [&] { sent_before = sent; };
  const auto began = std::chrono::steady_clock::now();
  client.Run(
      step,
      [&](uint64_t) {
        ++sent;
        return Ask(4);
      },
      [](double) { return true; }, &result);
  const std::chrono::duration<double> whole = std::chrono::steady_clock::now() - began;
  EXPECT_GT(sent_before, 2);
  EXPECT_GT(result.finished, 0);
  // At most two of the earlier requests were not yet counted.
  EXPECT_LE(result.finished, sent - sent_before + 2);
  EXPECT_LE(result.tokens, 4 * (sent - sent_before + 2));
  EXPECT_GT(result.wall_seconds, 0.1) << "on a busy machine";
  EXPECT_LE(result.wall_seconds, whole.count() - step.warm_up_seconds);
}

TEST_F(BenchServeTest, CallsToAServerThatIsGoneAreFailures) {
  server_->Shutdown();
  LoadClient client("unix:" + (dir_ / "none").string(), 1);
  LoadResult result;
  client.Run(
      {.clients = 1, .requests = 2}, [](uint64_t) { return Ask(4); }, [](double) { return true; },
      &result);
  EXPECT_EQ(result.failures["UNAVAILABLE"], 2);
}

TEST_F(BenchServeTest, DraftingNeedsADrafter) {
  service_.drafter_attached_ = false;
  EXPECT_EQ(Run({"--clients", "1"}), kExitServerError);
  EXPECT_THAT(err_, HasSubstr("no drafter"));
  EXPECT_EQ(Run({"--clients", "1", "--drafting", "off", "--pairs", "1"}), kExitOk);
}

TEST_F(BenchServeTest, ImpossibleOptionsAreRefused) {
  EXPECT_EQ(Run({"--requests", "3", "--seconds", "3"}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("give one or the other"));
  EXPECT_EQ(Run({"--output-lengths", "some"}), kExitUsage);
  EXPECT_THAT(err_, AllOf(HasSubstr("--output-lengths"), HasSubstr("want fixed:N")));
  EXPECT_EQ(Run({"--modes", "cold"}), kExitUsage);
  EXPECT_EQ(Run({"--clients", "0"}), kExitUsage);
  EXPECT_EQ(Run({"--shared-prefix", "5000"}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("--shared-prefix: got 5000"));
}

}  // namespace
}  // namespace tandem::cli
