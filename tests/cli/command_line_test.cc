#include "services/cli/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <regex>
#include <string>
#include <vector>

#include "common/flags/flag.h"
#include "common/flags/foreign_flag.h"

namespace tandem::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// Sets an environment variable during its life.
class ScopedVariable {
 public:
  ScopedVariable(const std::string& name, const std::string& value) : name_(name) {
    setenv(name.c_str(), value.c_str(), 1);
  }
  ~ScopedVariable() { unsetenv(name_.c_str()); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  std::string name_;
};

template <typename Options>
Options MustParse(const std::vector<std::string>& arguments) {
  Command command = ParseCommandLine(arguments);
  if (const auto* error = std::get_if<UsageError>(&command)) ADD_FAILURE() << error->message;
  if (!std::holds_alternative<Options>(command)) return {};
  return std::get<Options>(std::move(command));
}

std::string UsageMessage(const std::vector<std::string>& arguments) {
  const Command command = ParseCommandLine(arguments);
  const auto* error = std::get_if<UsageError>(&command);
  return error == nullptr ? "(was accepted)" : error->message;
}

std::string HelpText(const std::vector<std::string>& arguments) {
  const Command command = ParseCommandLine(arguments);
  const auto* show = std::get_if<ShowText>(&command);
  return show == nullptr ? "(no help)" : show->text;
}

TEST(CommandLineTest, ServeTakesItsOptions) {
  const auto serve = MustParse<ServeArguments>({"serve",
                                                "--target",
                                                "/m/t",
                                                "--draft",
                                                "/m/d",
                                                "--draft-length",
                                                "5",
                                                "--listen",
                                                "127.0.0.1:0",
                                                "--drafter",
                                                "none",
                                                "--threads",
                                                "2",
                                                "--max-slots",
                                                "3",
                                                "--max-context",
                                                "100",
                                                "--max-queue",
                                                "9",
                                                "--transport",
                                                "inline",
                                                "--drain-seconds",
                                                "7",
                                                "--audit-fraction",
                                                "0.01",
                                                "--audit-fails-readiness",
                                                "--heartbeat-timeout",
                                                "2.5",
                                                "--insecure",
                                                "--color",
                                                "never",
                                                "--kv-cache-bytes",
                                                "4G",
                                                "--draft-kv-cache-bytes",
                                                "100000",
                                                "--backend",
                                                "auto",
                                                "--gpu",
                                                "1",
                                                "--gpu-memory-bytes",
                                                "8G",
                                                "--draft-gpu-memory-bytes",
                                                "1G"});
  EXPECT_EQ(serve.server.target, "/m/t");
  EXPECT_EQ(serve.server.draft, "/m/d");
  EXPECT_EQ(serve.server.listen, "127.0.0.1:0");
  EXPECT_EQ(serve.server.drafter, "none");
  EXPECT_THAT(
      serve.server.handed_on,
      UnorderedElementsAre(
          Pair("--audit-fails-readiness", "true"), Pair("--audit-fraction", "0.01"),
          Pair("--backend", "auto"), Pair("--draft-gpu-memory-bytes", "1G"),
          Pair("--draft-kv-cache-bytes", "100000"), Pair("--draft-length", "5"), Pair("--gpu", "1"),
          Pair("--gpu-memory-bytes", "8G"), Pair("--heartbeat-timeout", "2.5"),
          Pair("--kv-cache-bytes", "4G"), Pair("--max-context", "100"), Pair("--max-queue", "9"),
          Pair("--max-slots", "3"), Pair("--threads", "2"), Pair("--transport", "inline")));
  EXPECT_EQ(serve.server.heartbeat_timeout_seconds, 2.5);
  EXPECT_EQ(serve.server.drain_seconds, 7);
  EXPECT_TRUE(serve.server.insecure);
  EXPECT_EQ(serve.color, ColorMode::kNever);
}

TEST(CommandLineTest, ServeWithoutOptionsLeavesTheDefaultsToTheProcesses) {
  const auto serve = MustParse<ServeArguments>({"serve"});
  EXPECT_EQ(serve.server.listen, "127.0.0.1:50051");
  EXPECT_THAT(serve.server.handed_on, IsEmpty());
  EXPECT_EQ(serve.server.heartbeat_timeout_seconds, 3);
}

TEST(CommandLineTest, GenerateSetsOnlyGivenOptions) {
  const auto options = MustParse<GenerateOptions>({"generate", "Once upon a time"});
  EXPECT_EQ(options.prompt, "Once upon a time");
  EXPECT_EQ(options.request.sampling_params().ByteSizeLong(), 0u);
  EXPECT_EQ(options.request.speculation().ByteSizeLong(), 0u);
  EXPECT_FALSE(options.request.has_add_special_tokens());
}

TEST(CommandLineTest, GenerateSetsEverySamplingParameter) {
  const auto options = MustParse<GenerateOptions>({"generate",
                                                   "--temperature",
                                                   "0.5",
                                                   "--top-p",
                                                   "0.9",
                                                   "--top-k",
                                                   "-1",
                                                   "--min-p",
                                                   "0.1",
                                                   "--repetition-penalty",
                                                   "1.1",
                                                   "--presence-penalty",
                                                   "-0.5",
                                                   "--frequency-penalty",
                                                   "0.25",
                                                   "--logit-bias",
                                                   "7=-1.5",
                                                   "--logit-bias",
                                                   "8=2",
                                                   "--seed",
                                                   "18446744073709551615",
                                                   "--max-tokens",
                                                   "12",
                                                   "--min-tokens",
                                                   "3",
                                                   "--stop",
                                                   "END",
                                                   "--stop",
                                                   "\n\n",
                                                   "--stop-token-id",
                                                   "5",
                                                   "--ignore-eos",
                                                   "--include-stop",
                                                   "--no-skip-special",
                                                   "--logprobs",
                                                   "2",
                                                   "--json",
                                                   "a prompt"});
  const v1::SamplingParams& params = options.request.sampling_params();
  EXPECT_EQ(options.prompt, "a prompt");
  EXPECT_FLOAT_EQ(params.temperature(), 0.5F);
  EXPECT_FLOAT_EQ(params.top_p(), 0.9F);
  EXPECT_EQ(params.top_k(), -1);
  EXPECT_FLOAT_EQ(params.min_p(), 0.1F);
  EXPECT_FLOAT_EQ(params.repetition_penalty(), 1.1F);
  EXPECT_FLOAT_EQ(params.presence_penalty(), -0.5F);
  EXPECT_FLOAT_EQ(params.frequency_penalty(), 0.25F);
  EXPECT_FLOAT_EQ(params.logit_bias().at(7), -1.5F);
  EXPECT_FLOAT_EQ(params.logit_bias().at(8), 2.0F);
  EXPECT_EQ(params.seed(), 18446744073709551615ULL);
  EXPECT_EQ(params.max_tokens(), 12);
  EXPECT_EQ(params.min_tokens(), 3);
  EXPECT_THAT(params.stop(), ElementsAre("END", "\n\n"));
  EXPECT_THAT(params.stop_token_ids(), ElementsAre(5));
  EXPECT_TRUE(params.ignore_eos());
  EXPECT_TRUE(params.include_stop_str_in_output());
  EXPECT_TRUE(params.has_skip_special_tokens());
  EXPECT_FALSE(params.skip_special_tokens());
  EXPECT_EQ(params.logprobs(), 2);
}

TEST(CommandLineTest, GenerateSetsEverySpeculationParameter) {
  const auto options =
      MustParse<GenerateOptions>({"generate", "-", "--draft-length", "3", "--drafter", "ngram",
                                  "--no-reproducible", "--lenience", "0.8", "--no-special-tokens"});
  const v1::SpeculationParams& params = options.request.speculation();
  EXPECT_EQ(params.draft_length(), 3);
  EXPECT_EQ(params.drafter(), "ngram");
  EXPECT_TRUE(params.has_reproducible());
  EXPECT_FALSE(params.reproducible());
  EXPECT_FLOAT_EQ(params.lenience(), 0.8F);
  EXPECT_FALSE(params.has_enabled());
  EXPECT_TRUE(options.request.has_add_special_tokens());
  EXPECT_FALSE(options.request.add_special_tokens());
}

TEST(CommandLineTest, DraftingIsTurnedOffInTwoWays) {
  const auto flag = MustParse<GenerateOptions>({"generate", "x", "--no-draft", "--reproducible"});
  EXPECT_TRUE(flag.request.speculation().has_enabled());
  EXPECT_FALSE(flag.request.speculation().enabled());
  EXPECT_TRUE(flag.request.speculation().reproducible());
  EXPECT_EQ(flag.session.server.drafter, "model");
  const auto none = MustParse<GenerateOptions>({"generate", "x", "--drafter", "none"});
  EXPECT_TRUE(none.request.speculation().has_enabled());
  EXPECT_FALSE(none.request.speculation().enabled());
  EXPECT_EQ(none.session.server.drafter, "none");
}

TEST(CommandLineTest, GenerateNeedsExactlyOnePrompt) {
  EXPECT_THAT(UsageMessage({"generate"}), HasSubstr("PROMPT is needed"));
  EXPECT_THAT(UsageMessage({"generate", "x", "--prompt-file", "f"}), HasSubstr("not both"));
  EXPECT_EQ(MustParse<GenerateOptions>({"generate", "--prompt-file", "f"}).prompt_file, "f");
}

TEST(CommandLineTest, AConnectedCommandStartsNoModels) {
  EXPECT_EQ(MustParse<GenerateOptions>({"generate", "x", "--connect", "h:1"}).session.connect,
            "h:1");
  for (const std::vector<std::string>& model : {std::vector<std::string>{"--target", "d"},
                                                {"--target=d"},
                                                {"--draft", "d"},
                                                {"--models", "d"}}) {
    std::vector<std::string> arguments = {"generate", "x", "--connect", "h:1"};
    arguments.insert(arguments.end(), model.begin(), model.end());
    EXPECT_THAT(UsageMessage(arguments), HasSubstr("--connect")) << model[0];
  }
}

TEST(CommandLineTest, ModelsFromTheEnvironmentDoNotCountWithARunningServer) {
  const ScopedVariable target("TANDEM_TARGET", "/env/target");
  const ScopedVariable draft("TANDEM_DRAFT", "/env/draft");
  const ScopedVariable models("TANDEM_MODELS", "/env/models");
  EXPECT_EQ(MustParse<GenerateOptions>({"generate", "x"}).session.server.target, "/env/target");
  EXPECT_THAT(UsageMessage({"info", "--connect", "h:1", "--draft", "d"}), HasSubstr("--connect"));
  const auto check = [](const SessionOptions& session) {
    EXPECT_EQ(session.connect, "h:1");
    EXPECT_EQ(session.server.target + session.server.draft + session.server.models, "");
  };
  check(MustParse<GenerateOptions>({"generate", "x", "--connect", "h:1"}).session);
  check(MustParse<BenchOptions>({"bench", "--connect", "h:1"}).session);
  check(MustParse<BenchServeOptions>({"bench", "serve", "--connect", "h:1"}).session);
  check(MustParse<TokenizeOptions>({"tokenize", "x", "--connect", "h:1"}).session);
  const ScopedVariable address("TANDEM_ADDRESS", "h:1");
  check(MustParse<InfoArguments>({"info"}).session);
}

TEST(CommandLineTest, HealthcheckAsksAnAdminAddress) {
  EXPECT_EQ(MustParse<HealthcheckOptions>({"healthcheck"}).admin, "127.0.0.1:9464");
  const auto options = MustParse<HealthcheckOptions>({"healthcheck", "--admin", "h:1", "--tls"});
  EXPECT_EQ(options.admin, "h:1");
  EXPECT_TRUE(options.tls);
}

TEST(CommandLineTest, EachEndNamesItsOwnFiles) {
  const auto serve = MustParse<ServeArguments>({"serve", "--tls-certificate", "c", "--tls-key", "k",
                                                "--tls-client-ca", "a", "--token-file", "t"});
  EXPECT_EQ(serve.server.security.tls.certificate, "c");
  EXPECT_EQ(serve.server.security.tls.key, "k");
  EXPECT_EQ(serve.server.security.tls.authorities, "a");
  EXPECT_EQ(serve.server.security.token_file, "t");
  const std::vector<std::string> of_client = {"--tls-ca",  "a", "--tls-certificate", "c",
                                              "--tls-key", "k", "--token-file",      "t",
                                              "--insecure"};
  const auto with = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), of_client.begin(), of_client.end());
    return arguments;
  };
  for (const ClientSecurityOptions& security :
       {MustParse<GenerateOptions>(with({"generate", "x"})).session.security,
        MustParse<BenchOptions>(with({"bench"})).session.security,
        MustParse<BenchServeOptions>(with({"bench", "serve"})).session.security,
        MustParse<InfoArguments>(with({"info"})).session.security,
        MustParse<TopOptions>(with({"top"})).security}) {
    EXPECT_EQ(security.tls.authorities, "a");
    EXPECT_EQ(security.tls.certificate, "c");
    EXPECT_EQ(security.tls.key, "k");
    EXPECT_EQ(security.token_file, "t");
    EXPECT_TRUE(security.insecure);
  }
  EXPECT_FALSE(MustParse<InfoArguments>({"info"}).session.security.insecure);
}

TEST(CommandLineTest, TheEnvironmentSetsOptionsThatTheCommandLineLacks) {
  const ScopedVariable target("TANDEM_TARGET", "/env/target");
  const ScopedVariable length("TANDEM_DRAFT_LENGTH", "6");
  const ScopedVariable insecure("TANDEM_INSECURE", "true");
  const auto serve = MustParse<ServeArguments>({"serve", "--draft-length", "2"});
  EXPECT_EQ(serve.server.target, "/env/target");
  EXPECT_THAT(serve.server.handed_on, ElementsAre(Pair("--draft-length", "2")));
  EXPECT_TRUE(serve.server.insecure);
}

TEST(CommandLineTest, TheEnvironmentReachesGenerateToo) {
  const ScopedVariable address("TANDEM_ADDRESS", "unix:/s");
  const ScopedVariable top_p("TANDEM_TOP_P", "0.75");
  const ScopedVariable stop("TANDEM_STOP", "END");
  const ScopedVariable draft("TANDEM_NO_DRAFT", "1");
  const auto options = MustParse<GenerateOptions>({"generate", "x"});
  EXPECT_EQ(options.session.connect, "unix:/s");
  EXPECT_FLOAT_EQ(options.request.sampling_params().top_p(), 0.75F);
  EXPECT_THAT(options.request.sampling_params().stop(), ElementsAre("END"));
  EXPECT_FALSE(options.request.speculation().enabled());
}

TEST(CommandLineTest, BadValuesNameTheirOption) {
  EXPECT_THAT(UsageMessage({"serve", "--threads", "0"}), HasSubstr("--threads"));
  EXPECT_THAT(UsageMessage({"serve", "--drafter", "some"}), HasSubstr("--drafter"));
  EXPECT_THAT(UsageMessage({"generate", "x", "--logit-bias", "7:1"}), HasSubstr("--logit-bias"));
  EXPECT_THAT(UsageMessage({"generate", "x", "--top-k", "many"}), HasSubstr("--top-k"));
  EXPECT_THAT(UsageMessage({"generate", "x", "--top-p", "0"}), HasSubstr("--top-p"));
  EXPECT_THAT(UsageMessage({"generate", "x", "--min-p", "1.5"}), HasSubstr("--min-p"));
  EXPECT_THAT(UsageMessage({"generate", "x", "--presence-penalty", "2.5"}),
              HasSubstr("--presence-penalty"));
  EXPECT_THAT(UsageMessage({"generate", "x", "--frequency-penalty", "-3"}),
              HasSubstr("--frequency-penalty"));
  EXPECT_THAT(UsageMessage({"generate", "x", "--no-such"}), HasSubstr("--no-such"));
  EXPECT_THAT(UsageMessage({"bench", "--modes", "warm"}), HasSubstr("--modes"));
  EXPECT_THAT(UsageMessage({"frobnicate"}), HasSubstr("frobnicate"));
  EXPECT_THAT(UsageMessage({}), HasSubstr("a command is needed"));
}

TEST(CommandLineTest, ChatTakesTheRequestAndItsOwnOptions) {
  const auto options = MustParse<ChatOptions>(
      {"chat", "--system", "Be brief.", "--template-kwargs", R"({"a": 1})", "--temperature", "0.5",
       "--drafter", "suffix", "--no-history", "--color", "never", "--connect", "127.0.0.1:1"});
  EXPECT_EQ(options.settings.system, "Be brief.");
  EXPECT_EQ(options.settings.template_kwargs, R"({"a": 1})");
  EXPECT_FLOAT_EQ(options.settings.request.sampling_params().temperature(), 0.5F);
  EXPECT_EQ(options.settings.request.speculation().drafter(), "suffix");
  EXPECT_EQ(options.settings.color, ColorMode::kNever);
  EXPECT_TRUE(options.no_history);
  EXPECT_EQ(options.session.connect, "127.0.0.1:1");
  EXPECT_THAT(UsageMessage({"chat", "--template-kwargs", "[]"}), HasSubstr("a JSON object"));
  EXPECT_THAT(UsageMessage({"chat", "--prediction", "x"}), HasSubstr("--prediction"));
}

TEST(CommandLineTest, BatchNeedsTwoFiles) {
  const auto options =
      MustParse<BatchOptions>({"batch", "in", "--output", "out", "--concurrency", "3"});
  EXPECT_EQ(options.input, "in");
  EXPECT_EQ(options.output, "out");
  EXPECT_EQ(options.concurrency, 3);
  EXPECT_EQ(MustParse<BatchOptions>({"batch", "in", "--output", "out"}).concurrency, 0);
  EXPECT_THAT(UsageMessage({"batch", "in"}), HasSubstr("--output"));
  EXPECT_THAT(UsageMessage({"batch", "--output", "out"}), HasSubstr("FILE"));
  EXPECT_THAT(UsageMessage({"batch", "in", "--output", "out", "--concurrency", "0"}),
              HasSubstr("from 1 to 256"));
}

TEST(CommandLineTest, BenchTakesLists) {
  const auto options = MustParse<BenchOptions>(
      {"bench", "--draft-lengths", "1,3", "--modes", "sampled", "--pairs", "4", "--json", "out"});
  EXPECT_THAT(options.draft_lengths, ElementsAre(1, 3));
  EXPECT_THAT(options.modes, ElementsAre("sampled"));
  EXPECT_EQ(options.pairs, 4);
  EXPECT_EQ(options.json, "out");
  EXPECT_THAT(MustParse<BenchOptions>({"bench"}).draft_lengths, ElementsAre(0, 1, 2, 4, 6, 8));
}

TEST(CommandLineTest, DraftLengthsMayBeLeftToTheServer) {
  EXPECT_THAT(MustParse<ServeArguments>({"serve", "--draft-length", "auto"}).server.handed_on,
              ElementsAre(Pair("--draft-length", "auto")));
  EXPECT_THAT(MustParse<BenchOptions>({"bench", "--draft-lengths", "2,auto"}).draft_lengths,
              ElementsAre(2, kAutoDraftLength));
  for (const std::string wrong : {"-1", "often", "4x", ""}) {
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"serve", "--draft-length=" + wrong},
          {"bench", "--draft-lengths=" + wrong}}) {
      EXPECT_TRUE(std::holds_alternative<UsageError>(ParseCommandLine(command))) << wrong;
    }
  }
}

TEST(CommandLineTest, BenchServeTakesItsOptions) {
  const auto options = MustParse<BenchServeOptions>({"bench",
                                                     "serve",
                                                     "--clients",
                                                     "1,8",
                                                     "--modes",
                                                     "sampled,reproducible",
                                                     "--drafting",
                                                     "on,off",
                                                     "--draft-length",
                                                     "3",
                                                     "--pairs",
                                                     "7",
                                                     "--requests",
                                                     "9",
                                                     "--shared-prefix",
                                                     "16",
                                                     "--cancel-fraction",
                                                     "0.25",
                                                     "--prompt-lengths",
                                                     "uniform:3-5",
                                                     "--seed",
                                                     "4",
                                                     "--json",
                                                     "f",
                                                     "--max-slots",
                                                     "2"});
  EXPECT_THAT(options.clients, ElementsAre(1, 8));
  EXPECT_THAT(options.modes, ElementsAre("sampled", "reproducible"));
  EXPECT_THAT(options.drafting, ElementsAre("on", "off"));
  EXPECT_EQ(options.draft_length, 3);
  EXPECT_EQ(options.pairs, 7);
  EXPECT_EQ(options.requests, 9);
  EXPECT_EQ(options.shared_prefix, 16);
  EXPECT_DOUBLE_EQ(options.cancel_fraction, 0.25);
  EXPECT_TRUE(options.prompt_length.has_value());
  EXPECT_EQ(options.seed, 4u);
  EXPECT_EQ(options.json, "f");
  EXPECT_THAT(options.session.server.handed_on, ElementsAre(Pair("--max-slots", "2")));
  EXPECT_THAT(MustParse<BenchServeOptions>({"bench", "serve", "--rate", "0.5,20"}).rates,
              ElementsAre(0.5, 20));
  EXPECT_THAT(HelpText({"bench", "serve", "--help-all"}), HasSubstr("--cancel-fraction"));
  EXPECT_THAT(HelpText({"bench", "--help"}), HasSubstr("--draft-lengths"));
}

TEST(CommandLineTest, HelpIsGroupedAndStatesTheEnvironmentRuleOnce) {
  const std::string help = HelpText({"generate", "--help-all"});
  for (const char* group : {"Prompt:", "Output:", "Sampling:", "Length and stops:", "Speculation:",
                            "Server:", "Models:", "Resources:"}) {
    EXPECT_THAT(help, HasSubstr(group));
  }
  EXPECT_THAT(help, HasSubstr("TANDEM_TOP_P"));
  EXPECT_EQ(help.find("TANDEM_MIN_P"), std::string::npos);
  EXPECT_THAT(HelpText({"--help"}), HasSubstr("tandem generate --compare"));
  EXPECT_EQ(HelpText({"help"}), HelpText({"--help"}));
  EXPECT_THAT(HelpText({"--version"}), HasSubstr("tandem 0."));
}

TEST(CommandLineTest, TheShortHelpHasFiveOptionsAndSaysHowToSeeTheRest) {
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"serve"},
                                             {"generate"},
                                             {"chat"},
                                             {"batch"},
                                             {"bench"},
                                             {"bench", "serve"},
                                             {"tokenize"},
                                             {"info"}}) {
    std::vector<std::string> arguments = {"help"};
    arguments.insert(arguments.end(), command.begin(), command.end());
    const std::string help = HelpText(arguments);
    EXPECT_THAT(help, HasSubstr("--help-all"));
    const std::regex option("\n  (-\\w,)?--");
    const auto count = std::distance(std::sregex_iterator(help.begin(), help.end(), option),
                                     std::sregex_iterator());
    EXPECT_EQ(count, 5 + 2) << help;  // --help and --help-all too
  }
}

TEST(CommandLineTest, TheShortHelpOfGenerateNamesWhatPeopleLookFor) {
  const std::string help = HelpText({"help", "generate"});
  for (const char* flag : {"--compare", "--seed", "--top-p", "--connect", "--json"}) {
    EXPECT_THAT(help, HasSubstr(flag));
  }
}

TEST(CommandLineTest, TheShortHelpsNameTheGatewayAndTheLengthOfAnswers) {
  EXPECT_THAT(HelpText({"serve", "--help"}), HasSubstr("--http 127.0.0.1:8080"));
  EXPECT_THAT(HelpText({"--help"}), HasSubstr("tandem serve --http 127.0.0.1:8080"));
  EXPECT_THAT(HelpText({"chat", "--help"}), HasSubstr("--max-tokens"));
}

TEST(CommandLineTest, TheShortHelpsNameTheHeads) {
  EXPECT_THAT(HelpText({"help", "serve"}), HasSubstr("--heads"));
  EXPECT_THAT(HelpText({"help", "bench"}), HasSubstr("--heads"));
}

TEST(CommandLineTest, ARequestCanNameTheDraftModel) {
  const auto model = MustParse<GenerateOptions>({"generate", "x", "--drafter", "model"});
  EXPECT_EQ(model.request.speculation().drafter(), "model");
  EXPECT_EQ(model.session.server.drafter, "model");
}

TEST(CommandLineTest, FlagsOfOtherServersPointToOurs) {
  EXPECT_THAT(UsageMessage({"serve", "--model", "m"}),
              HasSubstr("there is no option \"--model\"; here it is --target (a folder"));
  EXPECT_THAT(UsageMessage({"serve", "-md", "m"}), HasSubstr("here it is --draft"));
  EXPECT_THAT(UsageMessage({"serve", "--port=8000"}), HasSubstr("here it is --listen (HOST:PORT"));
  EXPECT_THAT(UsageMessage({"serve", "--draft-max", "8"}), HasSubstr("here it is --draft-length"));
  EXPECT_THAT(UsageMessage({"serve", "--tensor-parallel-size", "2"}),
              HasSubstr("there is none: a model runs on one device"));
  EXPECT_THAT(UsageMessage({"generate", "-p", "text"}), HasSubstr("here it is PROMPT"));
  // healthcheck has no --listen, so that a hint would not help.
  EXPECT_EQ(UsageMessage({"healthcheck", "--port", "1"}).find("--listen"), std::string::npos);
}

TEST(CommandLineTest, FlagsOfOtherServersAreNoneOfOurs) {
  for (const ForeignFlag& foreign : ForeignFlags()) {
    bool known = foreign.flag.empty() || !foreign.flag.starts_with("-");
    for (int i = 0; i < kNumPrograms; ++i) {
      const auto program = static_cast<Program>(i);
      if (!foreign.flag.empty()) known = known || FindFlag(foreign.flag, program) != nullptr;
      if (program == Program::kServe || program == Program::kGenerate) {
        EXPECT_EQ(FindFlag(foreign.name, program), nullptr) << foreign.name;
      }
    }
    EXPECT_TRUE(known) << foreign.flag;
    EXPECT_TRUE(!foreign.flag.empty() || !foreign.comment.empty()) << foreign.name;
  }
}

}  // namespace
}  // namespace tandem::cli
