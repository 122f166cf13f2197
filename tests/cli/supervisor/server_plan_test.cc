#include "services/cli/supervisor/server_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

class ServerPlanTest : public ::testing::Test {
 protected:
  ServerPlanTest() {
    for (const char* name : {"tandem-verifier", "tandem-draft", "tandem-router"}) {
      std::ofstream(dir_ / name) << "#!/bin/sh\n";
      fs::permissions(dir_ / name, fs::perms::owner_all);
    }
    runtime_ = *RuntimeDirectory::CreateUnder(dir_.path());
    options_.listen = "127.0.0.1:0";
  }

  absl::StatusOr<SupervisorOptions> Plan() {
    return PlanServer(options_, {{"/m/target", target_name_}, drafts_, heads_}, *runtime_,
                      dir_.path());
  }

  std::string Socket(const std::string& name) const { return runtime_->SocketAddress(name); }
  std::string Path(const std::string& name) const { return (dir_ / name).string(); }

  testing::TempDir dir_;
  std::unique_ptr<RuntimeDirectory> runtime_;
  ServerOptions options_;
  std::vector<NamedModel> drafts_ = {{"/m/draft", ""}};
  fs::path heads_;
  std::string target_name_;
};

TEST_F(ServerPlanTest, WorkersListenOnPrivateSocketsThatTheRouterGets) {
  const auto plan = Plan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->workers.size(), 2u);
  EXPECT_THAT(plan->workers[0].command,
              ElementsAre(Path("tandem-verifier"), "--model", "/m/target", "--exit-with-parent",
                          "--report-refusal", "--log-format", "text", "--admin", "none",
                          "--ring-dir", runtime_->path().string()));
  EXPECT_EQ(plan->workers[0].listen, Socket("verifier.sock"));
  EXPECT_FALSE(plan->workers[0].optional);
  EXPECT_THAT(plan->workers[1].command,
              ElementsAre(Path("tandem-draft"), "--model", "/m/draft", "--exit-with-parent",
                          "--report-refusal", "--log-format", "text", "--admin", "none"));
  EXPECT_TRUE(plan->workers[1].optional);
  EXPECT_THAT(plan->router.command,
              ElementsAre(Path("tandem-router"), "--target", "/m/target", "--verifier",
                          Socket("verifier.sock"), "--drafter", Socket("draft.sock"),
                          "--drain-seconds", "30", "--exit-with-parent", "--report-refusal",
                          "--log-format", "text", "--admin", "none"));
  EXPECT_THAT(plan->router.first_start_arguments, ElementsAre("--drafter-required-at-start"));
  options_.draft_optional = true;
  EXPECT_TRUE(Plan()->router.first_start_arguments.empty());
  EXPECT_EQ(plan->router.listen, "127.0.0.1:0");
  EXPECT_GT(plan->router.stop_timeout, std::chrono::seconds(30));
}

std::string OptionOf(const ChildSpec& child, const std::string& name) {
  const auto at = std::find(child.command.begin(), child.command.end(), name);
  return at == child.command.end() ? "" : *std::next(at);
}

TEST_F(ServerPlanTest, EachProcessHasAnAdminPortOfItsOwn) {
  options_.admin = "127.0.0.1:0";
  auto plan = Plan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(OptionOf(plan->router, "--admin"), "127.0.0.1:0");
  EXPECT_EQ(OptionOf(plan->workers[0], "--admin"), "127.0.0.1:0");
  EXPECT_EQ(OptionOf(plan->workers[1], "--admin"), "127.0.0.1:0");

  // Finds three consecutive free ports.
  for (int port = 21000; port < 60000; port += 3) {
    options_.admin = "[::1]:" + std::to_string(port);
    if (plan = Plan(); plan.ok()) {
      EXPECT_EQ(OptionOf(plan->router, "--admin"), "[::1]:" + std::to_string(port));
      EXPECT_EQ(OptionOf(plan->workers[0], "--admin"), "[::1]:" + std::to_string(port + 1));
      EXPECT_EQ(OptionOf(plan->workers[1], "--admin"), "[::1]:" + std::to_string(port + 2));
      break;
    }
    ASSERT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted) << plan.status();
  }

  for (const char* wrong : {"unix:/tmp/admin", "nowhere", "127.0.0.1:65534", "0.0.0.0:9464"}) {
    options_.admin = wrong;
    const auto refused = Plan();
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--admin")) << wrong;
  }
  options_.insecure = true;
  options_.admin = "0.0.0.0:0";
  plan = Plan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->workers[0].command, ::testing::Contains("--insecure"));
}

TEST_F(ServerPlanTest, AGatewayIsPartOfThePlanIfItHasAnAddress) {
  EXPECT_FALSE(Plan()->gateway.has_value());
  options_.http = "127.0.0.1:0";
  EXPECT_EQ(Plan().status().code(), absl::StatusCode::kNotFound);  // its executable is missing
  std::ofstream(dir_ / "tandem-gateway") << "#!/bin/sh\n";
  fs::permissions(dir_ / "tandem-gateway", fs::perms::owner_all);
  auto plan = Plan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_TRUE(plan->gateway.has_value());
  EXPECT_EQ(plan->gateway->listen, "127.0.0.1:0");
  EXPECT_TRUE(plan->gateway->optional);
  EXPECT_THAT(plan->gateway->command,
              ElementsAre(Path("tandem-gateway"), "--drain-seconds", "30", "--exit-with-parent",
                          "--report-refusal", "--log-format", "text", "--admin", "none"));
  for (const char* wrong : {"unix:/tmp/http", "nowhere", "0.0.0.0:0"}) {
    options_.http = wrong;
    const auto refused = Plan();
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--http")) << wrong;
  }
}

TEST_F(ServerPlanTest, IfTheUsualAdminPortsAreTakenFreeOnesAreUsed) {
  options_.admin = "auto";
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor taken(io);
  boost::system::error_code error;
  taken.open(boost::asio::ip::tcp::v4());
  // Another process that has the port already serves the test too.
  taken.bind({boost::asio::ip::make_address("127.0.0.1"), kAdminPort + 1}, error);
  taken.listen(1, error);
  const auto plan = Plan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(OptionOf(plan->router, "--admin"), "127.0.0.1:0");
  EXPECT_EQ(OptionOf(plan->workers[1], "--admin"), "127.0.0.1:0");
}

TEST_F(ServerPlanTest, OptionsThatAreSetArePassedOn) {
  options_.handed_on = {{"--draft-length", "5"},
                        {"--threads", "2"},
                        {"--max-slots", "3"},
                        {"--max-context", "512"},
                        {"--kv-cache-bytes", "5G"},
                        {"--draft-kv-cache-bytes", "1000"},
                        {"--backend", "cuda"},
                        {"--gpu", "1"},
                        {"--gpu-memory-bytes", "70000"},
                        {"--draft-gpu-memory-bytes", "30000"},
                        {"--max-queue", "7"},
                        {"--transport", "inline"},
                        {"--audit-fraction", "0.25"},
                        {"--audit-fails-readiness", "true"},
                        {"--log-prompts", "true"},
                        {"--heartbeat-timeout", "1.5"}};
  options_.log_format = "json";
  options_.heartbeat_timeout_seconds = 1.5;
  const auto plan = Plan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(
      plan->workers[1].command,
      ElementsAre(Path("tandem-draft"), "--model", "/m/draft", "--exit-with-parent",
                  "--report-refusal", "--backend", "cuda", "--gpu-memory-bytes", "30000",
                  "--kv-cache-bytes", "1000", "--gpu", "1", "--max-context", "512", "--max-slots",
                  "3", "--threads", "2", "--log-format", "json", "--admin", "none"));
  EXPECT_THAT(plan->workers[0].command,
              IsSupersetOf({"--kv-cache-bytes", "5G", "--gpu-memory-bytes", "70000"}));
  const std::vector<std::string>& router = plan->router.command;
  EXPECT_THAT(std::vector<std::string>(router.begin() + 11, router.end()),
              ElementsAre("--audit-fails-readiness=true", "--audit-fraction", "0.25",
                          "--draft-length", "5", "--heartbeat-timeout", "1.5", "--log-prompts=true",
                          "--max-queue", "7", "--max-slots", "3", "--transport", "inline",
                          "--log-format", "json", "--admin", "none"));
  EXPECT_EQ(plan->heartbeat_timeout_seconds, 1.5);
}

TEST_F(ServerPlanTest, ModelsAreCalledByTheirOwnNameIfTheyHaveOne) {
  target_name_ = "big";
  drafts_[0].name = "small";
  const auto plan = Plan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->workers[0].command, IsSupersetOf({"--model-name", "big"}));
  EXPECT_THAT(plan->workers[1].command, IsSupersetOf({"--model-name", "small"}));
  EXPECT_THAT(plan->router.command, IsSupersetOf({"--model-name", "big"}));
}

TEST_F(ServerPlanTest, EachDraftModelHasAWorker) {
  drafts_ = {{"/m/small", ""}, {"/m/tiny", ""}};
  options_.admin = "127.0.0.1:0";
  const auto plan = Plan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->workers.size(), 3u);
  EXPECT_EQ(plan->workers[1].name, "draft");
  EXPECT_EQ(plan->workers[2].name, "draft-2");
  EXPECT_EQ(OptionOf(plan->workers[2], "--model"), "/m/tiny");
  EXPECT_TRUE(plan->workers[2].optional);
  EXPECT_EQ(OptionOf(plan->router, "--drafter"),
            Socket("draft.sock") + "+" + Socket("draft-2.sock"));
  options_.admin = "127.0.0.1:65533";
  EXPECT_THAT(std::string(Plan().status().message()),
              HasSubstr("want at most 65532: the workers get the next 3 ports"));
}

TEST_F(ServerPlanTest, WithoutADrafterThereIsNone) {
  drafts_.clear();
  fs::remove(dir_ / "tandem-draft");
  const auto plan = Plan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->workers.size(), 1u);
  EXPECT_EQ(OptionOf(plan->router, "--drafter"), "none");
}

TEST_F(ServerPlanTest, HeadsGoToTheVerifier) {
  heads_ = "/m/heads";
  const auto plan = Plan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(OptionOf(plan->workers[0], "--heads"), "/m/heads");
  EXPECT_EQ(OptionOf(plan->workers[1], "--heads"), "");
}

TEST_F(ServerPlanTest, AMissingExecutableIsNamed) {
  fs::remove(dir_ / "tandem-draft");
  EXPECT_THAT(std::string(Plan().status().message()), HasSubstr("tandem-draft"));
}

TEST_F(ServerPlanTest, OtherMachinesAreLetInOnlyOnRequest) {
  options_.listen = "0.0.0.0:0";
  EXPECT_THAT(std::string(Plan().status().message()), HasSubstr("--insecure"));
  options_.insecure = true;
  const auto plan = Plan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->router.command, ::testing::Contains("--insecure"));
}

TEST_F(ServerPlanTest, TokensLetOtherMachinesInAndGoToAllProcessesThatNeedThem) {
  const std::string tokens = (dir_ / "tokens").string();
  std::ofstream(tokens) << "client 0123456789abcdef\n";
  options_.security.token_file = tokens;
  options_.listen = "0.0.0.0:0";
  options_.admin = "0.0.0.0:0";
  auto plan = Plan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const ChildSpec& child : {plan->router, plan->workers[0], plan->workers[1]}) {
    EXPECT_EQ(OptionOf(child, "--token-file"), tokens) << child.name;
  }
  options_.admin = "none";
  plan = Plan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(OptionOf(plan->workers[0], "--token-file"), "") << "no client calls a worker";
  options_.security.token_file = (dir_ / "missing").string();
  EXPECT_THAT(std::string(Plan().status().message()), HasSubstr("--token-file"));
  options_.security = {.tls = {.certificate = tokens, .key = tokens, .authorities = ""},
                       .token_file = ""};
  EXPECT_THAT(std::string(Plan().status().message()), HasSubstr("--tls-certificate"));
}

TEST(FindModelsTest, TheEmbeddedPairIsTheDefault) {
  const auto models = FindModels({});
  ASSERT_TRUE(models.ok()) << models.status();
  EXPECT_TRUE(fs::exists(models->target.folder / "model.safetensors"));
  EXPECT_TRUE(fs::exists(models->drafts.at(0).folder / "model.safetensors"));
  EXPECT_EQ(models->target.name, "tales");
  EXPECT_EQ(models->drafts.at(0).name, "tales-draft");
  ServerOptions plain;
  plain.drafter = "none";
  EXPECT_TRUE(FindModels(plain)->drafts.empty());
}

TEST(FindModelsTest, DraftModelsAreAListOfFolders) {
  const testing::TempDir dir;
  for (const char* folder : {"target", "a/draft", "b/draft", "tiny", "with,comma"}) {
    fs::create_directories(dir / folder);
    for (const char* file : {"config.json", "model.safetensors"}) {
      std::ofstream(dir / folder / file) << "x";
    }
  }
  ServerOptions options;
  options.target = (dir / "target").string();
  const auto names = [&](const std::vector<std::string>& folders) {
    options.draft.clear();
    for (const std::string& folder : folders) {
      options.draft += (options.draft.empty() ? "" : ",") + (dir / folder).string();
    }
    const auto models = FindModels(options);
    std::vector<std::string> found;
    if (!models.ok()) return std::vector{std::string(models.status().message())};
    for (const NamedModel& model : models->drafts) found.push_back(model.name);
    return found;
  };
  EXPECT_EQ(names({"a/draft", "tiny"}), (std::vector<std::string>{"", ""})) << "the folders'";
  EXPECT_EQ(names({"a/draft", "tiny", "b/draft"}),
            (std::vector<std::string>{"a/draft", "", "b/draft"}));
  EXPECT_EQ(names({"with,comma"}), std::vector<std::string>{""}) << "a folder that there is";
  EXPECT_THAT(names({"tiny", "tiny/"}).front(), HasSubstr("is given twice"));
  EXPECT_THAT(names({"tiny", "missing"}).front(), HasSubstr("--draft"));
  EXPECT_THAT(names({"1", "2", "3", "4", "5"}).front(),
              HasSubstr("got 5 folders, allowed: at most 4"));
  options.draft = (dir / "tiny").string() + ",";
  EXPECT_THAT(std::string(FindModels(options).status().message()), HasSubstr("an empty name"));
}

TEST(FindModelsTest, ATargetAloneHasNoDrafter) {
  const testing::TempDir dir;
  ServerOptions options;
  options.target = dir.path().string();
  EXPECT_THAT(std::string(FindModels(options).status().message()),
              HasSubstr("--target: " + options.target + " has no config.json"));
  for (const char* file : {"config.json", "model.safetensors"}) {
    std::ofstream(dir / file) << "x";
  }
  const auto models = FindModels(options);
  ASSERT_TRUE(models.ok()) << models.status();
  EXPECT_TRUE(models->drafts.empty());
  EXPECT_EQ(models->target.name, "") << "the folder's";
  options.draft = (dir / "missing").string();
  EXPECT_THAT(std::string(FindModels(options).status().message()), HasSubstr("--draft"));
}

}  // namespace
}  // namespace tandem::cli
