// Tests the commands against a server in this process that answers from a script.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "common/admin/admin_server.h"
#include "services/cli/client/client_security.h"
#include "services/cli/run.h"
#include "tandem/v1/generate.grpc.pb.h"
#include "tests/security/certificates.h"
#include "tests/support/temp_dir.h"

namespace tandem::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Answers every prompt with "the king and
// " in three tokens. With drafting, the tokens after the first one come in one round.
class ScriptedServer final : public v1::Generation::Service {
 public:
  grpc::Status Generate(grpc::ServerContext* /*context*/, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(*request);
    }
    if (!refusal_.ok()) return refusal_;
    const bool drafting =
        drafts_ && drafter_attached_ &&
        (!request->speculation().has_enabled() || request->speculation().enabled());
    v1::GenerateResponse message;
    message.set_text("the");
    message.add_token_ids(1);
    message.add_sources(v1::TOKEN_SOURCE_PLAIN);
    writer->Write(message);
    message.Clear();
    message.set_text(" king" + (drafting ? ending_ : std::string(" and")));
    message.add_token_ids(2);
    message.add_token_ids(drafting ? 3 : plain_last_token_);
    message.add_sources(drafting ? v1::TOKEN_SOURCE_ACCEPTED : v1::TOKEN_SOURCE_PLAIN);
    message.add_sources(drafting ? v1::TOKEN_SOURCE_RECOVERED : v1::TOKEN_SOURCE_PLAIN);
    v1::Completion* completion = message.mutable_completion();
    completion->set_finish_reason(v1::FINISH_REASON_LENGTH);
    completion->set_lossless(true);
    completion->set_seed(5);
    completion->mutable_usage()->set_completion_tokens(3);
    completion->mutable_timings()->set_decode_seconds(drafting ? 0.001 : 0.002);
    completion->mutable_timings()->set_verify_seconds(drafting ? 0.001 : 0.002);
    completion->mutable_speculation()->set_reproducible(request->sampling_params().has_seed());
    if (drafting) {
      completion->mutable_speculation()->set_num_drafts(1);
      completion->mutable_speculation()->set_num_draft_tokens(2);
      completion->mutable_speculation()->set_num_accepted_tokens(1);
      completion->mutable_speculation()->set_num_tested_tokens(2);
    }
    writer->Write(message);
    return grpc::Status::OK;
  }

  grpc::Status Tokenize(grpc::ServerContext* /*context*/, const v1::TokenizeRequest* request,
                        v1::TokenizeResponse* response) override {
    if (request->add_special_tokens()) response->add_ids(9);
    response->add_ids(1);
    response->add_ids(2);
    return grpc::Status::OK;
  }

  grpc::Status Detokenize(grpc::ServerContext* /*context*/, const v1::DetokenizeRequest* request,
                          v1::DetokenizeResponse* response) override {
    static const std::vector<std::string> kTexts = {"", "the", " king", " and", "?"};
    for (int id : request->ids()) {
      if (id < 4) response->mutable_text()->append(kTexts[id]);
    }
    return grpc::Status::OK;
  }

  grpc::Status GetServerInfo(grpc::ServerContext* /*context*/,
                             const v1::GetServerInfoRequest* /*request*/,
                             v1::ServerInfo* info) override {
    info->set_model("big");
    info->set_draft_model("small");
    info->set_drafter_attached(drafter_attached_);
    for (const char* name : {"small", "model", "prediction", "suffix", "ngram", "recycling"}) {
      info->add_drafters(name);
    }
    info->set_drafter_problem(drafter_problem_);
    info->set_max_context_tokens(1024);
    return grpc::Status::OK;
  }

  grpc::Status refusal_ = grpc::Status::OK;
  std::string ending_ = " and";
  int plain_last_token_ = 3;
  bool drafter_attached_ = true;
  std::string drafter_problem_;
  bool drafts_ = true;

  std::vector<v1::GenerateRequest> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  std::mutex mutex_;
  std::vector<v1::GenerateRequest> requests_;
};

class CommandsTest : public ::testing::Test {
 protected:
  CommandsTest() {
    address_ = "unix:" + (dir_ / "s.sock").string();
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }

  // Runs a command against the server.
  int Connected(std::vector<std::string> arguments, const std::string& input = "") {
    arguments.insert(arguments.end(), {"--connect", address_});
    return Plainly(arguments, input);
  }

  int Plainly(const std::vector<std::string>& arguments, const std::string& input = "") {
    std::istringstream in(input);
    std::ostringstream out;
    std::ostringstream err;
    Console console = {.in = in, .out = out, .err = err};
    const int exit_code = cli::Run(arguments, console);
    out_ = out.str();
    err_ = err.str();
    return exit_code;
  }

  testing::TempDir dir_;
  std::string address_;
  ScriptedServer service_;
  std::unique_ptr<grpc::Server> server_;
  std::string out_;
  std::string err_;
};

TEST_F(CommandsTest, GenerateGivesAPipeOnlyTheText) {
  EXPECT_EQ(Connected({"generate", "Once"}), kExitOk);
  EXPECT_EQ(out_, "the king and\n");
  EXPECT_THAT(err_, HasSubstr("50 % of drafted (1 of 2)"));
  EXPECT_THAT(err_, Not(HasSubstr("\x1b")));
  ASSERT_EQ(service_.requests().size(), 1u);
  EXPECT_EQ(service_.requests()[0].prompt(), "Once");
}

TEST_F(CommandsTest, GenerateColorsEachTokenBySource) {
  EXPECT_EQ(Connected({"generate", "Once", "--color", "always"}), kExitOk);
  EXPECT_EQ(out_, "the\x1b[32m king\x1b[0m\x1b[33m and\x1b[0m\n");
  EXPECT_THAT(err_, HasSubstr("\x1b[32m■ accepted"));
}

TEST_F(CommandsTest, GenerateReadsThePromptFromStandardInputOrAFile) {
  EXPECT_EQ(Connected({"generate", "-", "--echo"}, "from input"), kExitOk);
  EXPECT_EQ(out_, "from inputthe king and\n");
  std::ofstream(dir_ / "prompt") << "from a file";
  EXPECT_EQ(Connected({"generate", "--prompt-file", (dir_ / "prompt").string()}), kExitOk);
  EXPECT_EQ(service_.requests().at(1).prompt(), "from a file");
  EXPECT_EQ(Connected({"generate", "--prompt-file", "/nonexistent"}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("/nonexistent"));
}

TEST_F(CommandsTest, GenerateRefusesTextThatIsNotUtf8) {
  EXPECT_EQ(Connected({"generate", "-"}, "ab\xFF"), kExitUsage);
  EXPECT_EQ(err_, "error: prompt: byte 2 is not valid UTF-8\n");
  EXPECT_TRUE(service_.requests().empty());
}

TEST_F(CommandsTest, AStatusIsOneLine) {
  service_.refusal_ = {grpc::StatusCode::INVALID_ARGUMENT, "sampling_params.max_tokens: got 9"};
  EXPECT_EQ(Connected({"generate", "Once", "--max-tokens", "9"}), kExitServerError);
  EXPECT_EQ(err_, "error: INVALID_ARGUMENT: sampling_params.max_tokens: got 9\n");
  EXPECT_EQ(service_.requests().at(0).sampling_params().max_tokens(), 9);
}

TEST_F(CommandsTest, CompareRunsBothWaysWithTheSameSeed) {
  EXPECT_EQ(Connected({"generate", "Once", "--seed", "5", "--compare"}), kExitOk);
  EXPECT_THAT(err_, HasSubstr("identical, token for token"));
  EXPECT_THAT(err_, HasSubstr("2.00×"));
  const auto requests = service_.requests();
  ASSERT_EQ(requests.size(), 101u);  // the run that is shown, and fifty pairs
  int plain = 0;
  for (const v1::GenerateRequest& request : requests) {
    EXPECT_EQ(request.sampling_params().seed(), 5u);
    if (request.speculation().has_enabled() && !request.speculation().enabled()) ++plain;
  }
  EXPECT_EQ(plain, 50);
}

TEST_F(CommandsTest, CompareNoticesAnotherToken) {
  service_.plain_last_token_ = 4;
  EXPECT_EQ(Connected({"generate", "Once", "--temperature", "0", "--compare"}), kExitServerError);
  EXPECT_THAT(err_, HasSubstr("DIFFERS from token 2"));
}

TEST_F(CommandsTest, CompareNoticesOtherText) {
  service_.ending_ = " or";
  EXPECT_EQ(Connected({"generate", "Once", "--temperature", "0", "--compare"}), kExitServerError);
  EXPECT_THAT(err_, HasSubstr("DIFFERS"));
}

TEST_F(CommandsTest, CompareSaysWhyNothingWasDrafted) {
  const auto compare = [this](const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"generate", "Once", "--compare"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(Connected(arguments), kExitServerError);
    EXPECT_THAT(err_, Not(HasSubstr("×")));
    EXPECT_THAT(err_, HasSubstr("none: nothing was drafted, because "));
  };
  compare({"--no-draft"});
  EXPECT_THAT(err_, HasSubstr("because the request turned drafting off (--no-draft)"));
  service_.drafts_ = false;
  compare();
  EXPECT_THAT(err_, HasSubstr("because the server expected no gain from it"));
  service_.drafter_attached_ = false;
  compare();
  EXPECT_THAT(err_, HasSubstr("because the server has no draft model (--draft), and no lookup"));
  service_.drafter_problem_ = "draft: it has another vocabulary";
  compare();
  EXPECT_THAT(err_, HasSubstr("because no drafter is attached: draft: it has another vocabulary"));
  EXPECT_EQ(Connected({"generate", "Once", "--json", "--compare"}), kExitServerError);
  EXPECT_EQ(nlohmann::json::parse(out_)["comparison"],
            nlohmann::json(
                {{"why_no_drafts", "no drafter is attached: draft: it has another vocabulary"}}));
}

TEST_F(CommandsTest, CompareDoesNotPromiseEqualDraws) {
  service_.plain_last_token_ = 4;
  EXPECT_EQ(Connected({"generate", "Once", "--compare"}), kExitOk);
  EXPECT_THAT(err_, HasSubstr("not compared"));
}

TEST_F(CommandsTest, JsonIsOneObjectWithEverything) {
  EXPECT_EQ(Connected({"generate", "Once", "--json", "--compare", "--seed", "5"}), kExitOk);
  const nlohmann::json json = nlohmann::json::parse(out_);
  EXPECT_EQ(json["prompt"], "Once");
  EXPECT_EQ(json["response"]["text"], "the king and");
  EXPECT_EQ(json["response"]["token_ids"], nlohmann::json({1, 2, 3}));
  EXPECT_EQ(json["response"]["completion"]["usage"]["completion_tokens"], 3);
  EXPECT_EQ(json["comparison"]["text_identical"], true);
  EXPECT_EQ(json["comparison"]["pairs"], 50);
}

TEST_F(CommandsTest, AServerThatDoesNotAnswerIsReported) {
  server_->Shutdown();
  EXPECT_EQ(Plainly({"info", "--connect", "unix:" + (dir_ / "none").string()}), kExitServerError);
  EXPECT_THAT(err_, StartsWith("error: nobody answers at unix:"));
  EXPECT_THAT(err_, HasSubstr("the address of its line `ready:` and not that of `http:`"));
}

TEST_F(CommandsTest, ChatNeedsAModelThatCanChat) {
  EXPECT_EQ(Connected({"chat"}), kExitServerError);
  EXPECT_THAT(err_, StartsWith("error: big cannot chat: "));
  EXPECT_EQ(out_, "");
}

TEST_F(CommandsTest, TokenizePrintsIdsOrPieces) {
  EXPECT_EQ(Connected({"tokenize", "the king"}), kExitOk);
  EXPECT_EQ(out_, "9 1 2\n");
  EXPECT_EQ(Connected({"tokenize", "the king", "--no-special-tokens", "--pieces"}), kExitOk);
  EXPECT_EQ(out_, "      1  \"the\"\n      2  \" king\"\n");
}

TEST_F(CommandsTest, InfoNamesTheModels) {
  EXPECT_EQ(Connected({"info"}), kExitOk);
  EXPECT_THAT(out_, HasSubstr("model         big\n"));
  EXPECT_THAT(out_, HasSubstr("draft model   small\n"));
  EXPECT_THAT(out_, HasSubstr("1024 tokens"));
}

TEST_F(CommandsTest, BenchLeavesTheDraftLengthToTheServer) {
  EXPECT_EQ(Connected({"bench", "--draft-lengths", "auto", "--modes", "greedy", "--pairs", "1"}),
            kExitOk);
  int chosen = 0;
  for (const v1::GenerateRequest& request : service_.requests()) {
    EXPECT_FALSE(request.speculation().has_draft_length());
    if (request.speculation().enabled()) ++chosen;
  }
  EXPECT_EQ(chosen, 2);  // one of them warms up
}

TEST_F(CommandsTest, BenchMeasuresEveryCellInPairs) {
  const std::string json_path = (dir_ / "bench.json").string();
  EXPECT_EQ(Connected({"bench", "--draft-lengths", "2,4", "--pairs", "3", "--json", json_path}),
            kExitOk);
  EXPECT_THAT(out_, HasSubstr("sampled"));
  EXPECT_THAT(out_, HasSubstr("2.00×"));
  // There are two modes, three lengths (plain decoding is always one), three pairs, and one pair to
  // warm up.
  const auto requests = service_.requests();
  EXPECT_EQ(requests.size(), 2u * 3 * 4);
  for (const v1::GenerateRequest& request : requests) {
    EXPECT_TRUE(request.sampling_params().ignore_eos());
    EXPECT_FALSE(request.speculation().reproducible());
  }
  std::ifstream file(json_path);
  const nlohmann::json json = nlohmann::json::parse(file);
  ASSERT_EQ(json["rows"].size(), 6u);
  EXPECT_EQ(json["rows"][1]["pairs"], 3);
  EXPECT_DOUBLE_EQ(json["rows"][1]["speedup"], 2);
}

TEST_F(CommandsTest, BenchComparesDrafters) {
  const auto drafters_of = [&](const std::string& names) {
    const size_t before = service_.requests().size();
    EXPECT_EQ(Connected({"bench", "--drafters", names, "--draft-lengths", "2", "--modes", "greedy",
                         "--pairs", "1"}),
              kExitOk);
    std::set<std::string> drafters;
    const auto requests = service_.requests();
    for (size_t i = before; i < requests.size(); ++i) {
      if (requests[i].speculation().enabled()) drafters.insert(requests[i].speculation().drafter());
    }
    return drafters;
  };
  EXPECT_EQ(drafters_of("suffix,auto"), (std::set<std::string>{"", "suffix"}));
  EXPECT_EQ(drafters_of("all"),
            (std::set<std::string>{"", "model", "ngram", "recycling", "suffix"}));
}

TEST_F(CommandsTest, BenchNeedsADrafter) {
  service_.drafter_attached_ = false;
  EXPECT_EQ(Connected({"bench"}), kExitServerError);
  EXPECT_THAT(err_, HasSubstr("no draft model"));
  EXPECT_EQ(Connected({"bench", "--drafters", "suffix", "--modes", "greedy", "--pairs", "1"}),
            kExitOk);
}

TEST_F(CommandsTest, ATokenGoesInPlaintextOnlyToThisMachine) {
  const std::string path = (dir_ / "tokens").string();
  std::ofstream(path) << "client client-0123456789\n";
  ClientSecurityOptions options;
  options.token_file = path;
  for (const char* here : {"127.0.0.1:1", "[::1]:1", "localhost:1", "unix:/s"}) {
    EXPECT_TRUE(ClientSecurity::Open(options, here).ok()) << here;
  }
  for (const char* there : {"192.0.2.1:1", "[2001:db8::1]:1", "example.org:1", "0.0.0.0:1",
                            "localhost.example.org:1", "dns:///127.0.0.1:1", "nowhere"}) {
    const absl::Status refused = ClientSecurity::Open(options, there).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << there;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("--tls-ca")) << there;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("--insecure")) << there;
  }
  options.insecure = true;
  EXPECT_EQ(ClientSecurity::Open(options, "192.0.2.1:1")->token, "client-0123456789");
  EXPECT_TRUE(ClientSecurity::Open({}, "192.0.2.1:1").ok()) << "there is no token to lose";
  // Every command checks this before it sends anything.
  EXPECT_EQ(Plainly({"info", "--connect", "192.0.2.1:1", "--token-file", path}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("--insecure"));
  EXPECT_EQ(Plainly({"top", "--once", "--admin", "192.0.2.1:1", "--token-file", path}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("--insecure"));
}

TEST_F(CommandsTest, HealthcheckSaysWhetherAProcessIsReady) {
  const testing::Authority authority("nobody knows it");
  const testing::Identity identity = authority.Issue("example.org");
  testing::WriteFile(dir_ / "cert.pem", identity.certificate);
  testing::WriteFile(dir_ / "key.pem", identity.key);
  std::ofstream(dir_ / "tokens") << "admin admin-0123456789\n";
  for (const bool tls : {false, true}) {
    std::atomic<int> status = 200;
    AdminRoutes routes;
    routes["/readyz"] = [&](const std::string&) {
      return AdminResponse{.body = "so it is\n", .status = status.load()};
    };
    ServerSecurity security;
    security.tokens = *TokenFile::Open((dir_ / "tokens").string());
    if (tls) {
      security.tls = *TlsFiles::Open({.certificate = (dir_ / "cert.pem").string(),
                                      .key = (dir_ / "key.pem").string(),
                                      .authorities = ""});
    }
    auto server =
        *AdminServer::Start(*Address::Parse("127.0.0.1:0"), std::move(routes), {}, security);
    const std::string address = server->address();
    std::vector<std::string> command = {"healthcheck", "--admin", address};
    if (tls) command.push_back("--tls");
    EXPECT_EQ(Plainly(command), kExitOk) << err_;
    EXPECT_EQ(out_ + err_, "");
    status = 503;
    EXPECT_EQ(Plainly(command), kExitServerError);
    EXPECT_THAT(err_, HasSubstr("answered 503 to /readyz"));
    if (tls) {
      EXPECT_EQ(Plainly({"healthcheck", "--admin", address}), kExitServerError);
    }
    server.reset();
    EXPECT_EQ(Plainly(command), kExitServerError);
  }
  EXPECT_EQ(Plainly({"healthcheck", "--admin", "unix:/s"}), kExitUsage);
}

TEST_F(CommandsTest, ServeReportsErrorsBeforeItStartsAnything) {
  EXPECT_EQ(Plainly({"serve", "--target", "/nonexistent"}), kExitUsage);
  EXPECT_EQ(err_,
            "error: --target: /nonexistent does not exist (want a model's folder in Hugging Face "
            "layout)\n");
  EXPECT_EQ(Plainly({"serve", "--draft", dir_.path().string()}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("no --target"));
  EXPECT_EQ(Plainly({"serve", "--listen", "0.0.0.0:0"}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("--insecure"));
  EXPECT_EQ(Plainly({"serve", "--listen", "nowhere"}), kExitUsage);
  EXPECT_EQ(Plainly({"serve", "--listen", address_}), kExitServerError);
  EXPECT_THAT(err_, HasSubstr("is taken"));
  EXPECT_EQ(Plainly({"serve", "--models", dir_.path().string()}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("--models"));
  // The folder of the tests has no workers.
  EXPECT_EQ(Plainly({"serve", "--listen", "127.0.0.1:0"}), kExitServerError);
  EXPECT_THAT(err_, HasSubstr("is missing"));
}

}  // namespace
}  // namespace tandem::cli
