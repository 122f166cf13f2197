#include "common/flags/flag_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <memory>
#include <string>
#include <vector>

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

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

// Binds all flags that are not handed on to variables that nobody reads.
void BindRest(FlagParser& parser, Program program) {
  for (const Flag* flag : FlagsOf(program)) {
    if (!flag->handed_to.empty() && IsCommand(program)) continue;
    parser.OnText(flag->name, [](const std::string&) { return absl::OkStatus(); });
  }
}

// The flags of `tandem top`, which have most kinds of values.
struct TopFlags {
  TopFlags() : parser(Program::kTop, "Shows what a router does.") {
    parser.Bind("--admin", &admin);
    parser.Bind("--connect", &connect);
    for (const char* file : {"--tls-ca", "--tls-certificate", "--tls-key", "--token-file"}) {
      parser.OnValue<std::string>(file, [this](const std::string& path) { files += path; });
    }
    parser.Bind("--insecure", &insecure);
    parser.Bind("--interval", &interval);
    parser.Bind("--once", &once);
    parser.Bind("--color", &color);
  }

  FlagParser parser;
  std::string admin;
  std::string connect;
  std::string files;
  bool insecure = false;
  double interval = 0;
  bool once = false;
  std::string color;
};

TEST(FlagParserTest, WithoutArgumentsVariablesHaveTheDefaultsOfTheTable) {
  TopFlags flags;
  const auto text = flags.parser.Parse({});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, std::nullopt);
  EXPECT_EQ(flags.admin, "127.0.0.1:9464");
  EXPECT_EQ(flags.interval, 1);
  EXPECT_EQ(flags.color, "auto");
  EXPECT_FALSE(flags.once);
  EXPECT_EQ(flags.files, "");
}

TEST(FlagParserTest, GivenValuesReplaceTheDefaults) {
  TopFlags flags;
  const auto text = flags.parser.Parse(
      {"--admin", "h:1", "--interval=0.5", "--once", "--tls-ca", "f", "--color", "never"});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(flags.admin, "h:1");
  EXPECT_EQ(flags.interval, 0.5);
  EXPECT_TRUE(flags.once);
  EXPECT_EQ(flags.files, "f");
  EXPECT_TRUE(flags.parser.IsTyped("--admin"));
  EXPECT_FALSE(flags.parser.IsTyped("--insecure"));
}

TEST(FlagParserTest, TheCommandLineTakesPrecedenceOverTheEnvironment) {
  const ScopedVariable admin("TANDEM_ADMIN", "h:1");
  const ScopedVariable interval("TANDEM_INTERVAL", "7");
  const ScopedVariable once("TANDEM_ONCE", "true");
  const ScopedVariable color("TANDEM_COLOR", "");
  TopFlags flags;
  ASSERT_TRUE(flags.parser.Parse({"--interval", "2"}).ok());
  EXPECT_EQ(flags.admin, "h:1");
  EXPECT_FALSE(flags.parser.IsTyped("--admin"));
  EXPECT_EQ(flags.interval, 2);
  EXPECT_TRUE(flags.once);
  EXPECT_EQ(flags.color, "auto") << "an empty variable counts as not set";
}

TEST(FlagParserTest, ASwitchCanBeGivenAsFalse) {
  const ScopedVariable once("TANDEM_ONCE", "true");
  TopFlags flags;
  ASSERT_TRUE(flags.parser.Parse({"--once=false"}).ok());
  EXPECT_FALSE(flags.once);
}

TEST(FlagParserTest, ErrorsNameTheFlagAndTheVariable) {
  const auto message = [](const std::vector<std::string>& arguments) {
    TopFlags flags;
    return std::string(flags.parser.Parse(arguments).status().message());
  };
  EXPECT_EQ(message({"--interval", "0"}),
            "--interval: got \"0\", allowed: a number from 0.1 to 3600");
  EXPECT_EQ(message({"--no-such"}), "there is no option \"--no-such\"");
  EXPECT_EQ(message({"--intreval=1"}),
            "there is no option \"--intreval\"; did you mean --interval?");
  EXPECT_EQ(message({"--port"}), "there is no option \"--port\"");  // this program has no --listen
  EXPECT_EQ(message({"word"}), "there is one argument too many: \"word\"");
  EXPECT_THAT(message({"--admin"}), HasSubstr("--admin"));
  EXPECT_THAT(message({"--admin", "a", "--admin", "b"}), HasSubstr("--admin"));
  const ScopedVariable interval("TANDEM_INTERVAL", "often");
  EXPECT_EQ(message({}),
            "--interval: got \"often\", allowed: a number from 0.1 to 3600 (from the environment "
            "variable TANDEM_INTERVAL)");
}

TEST(FlagParserTest, HelpHasEveryFlagWithItsLimitsAndItsDefault) {
  TopFlags flags;
  const auto text = flags.parser.Parse({"--help", "--interval", "0"});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(**text, HasSubstr("Shows what a router does.\n\nUsage: tandem top [OPTIONS]\n"));
  EXPECT_THAT(**text, HasSubstr("\nSecurity:\n"));
  EXPECT_THAT(**text,
              HasSubstr("  --interval SECONDS          A new frame is shown after this time. "
                        "Allowed: a number from 0.1 to\n"));
  EXPECT_THAT(**text, HasSubstr("  --color auto|always|never   "));
  for (const Flag* flag : FlagsOf(Program::kTop)) {
    EXPECT_THAT(**text, HasSubstr("\n  " + std::string(flag->name)));
  }
}

TEST(FlagParserTest, TheHelpOfAnExecutableNamesItsVariables) {
  FlagParser parser(Program::kVerifier, "");
  BindRest(parser, Program::kVerifier);
  const auto help = parser.Parse({"-h"});
  ASSERT_TRUE(help.ok()) << help.status();
  for (const Flag* flag : FlagsOf(Program::kVerifier)) {
    const std::string variable = FlagVariable(*flag, Program::kVerifier);
    if (!variable.empty()) {
      EXPECT_THAT(**help, HasSubstr(variable + "."));
    }
  }
}

TEST(FlagParserTest, HandedOnFlagsKeepTheirTexts) {
  FlagTexts texts = {{"--kv-cache-bytes", "4G"},
                     {"--draft-kv-cache-bytes", "1G"},
                     {"--max-queue", "3"},
                     {"--threads", "2"},
                     {"--log-prompts", "true"}};
  EXPECT_THAT(HandedOnArguments(texts, Program::kRouter),
              ElementsAre("--log-prompts=true", "--max-queue", "3"));
  EXPECT_THAT(HandedOnArguments(texts, Program::kVerifier),
              ElementsAre("--kv-cache-bytes", "4G", "--threads", "2"));
  EXPECT_THAT(HandedOnArguments(texts, Program::kDraft),
              ElementsAre("--kv-cache-bytes", "1G", "--threads", "2"));
}

TEST(FlagParserTest, OnlyGivenFlagsAreHandedOn) {
  const ScopedVariable threads("TANDEM_THREADS", "2");
  FlagParser parser(Program::kInfo, "");
  FlagTexts texts;
  parser.BindHandedOn(&texts);
  BindRest(parser, Program::kInfo);
  ASSERT_TRUE(parser.Parse({"--max-slots", "5", "--target", "t"}).ok());
  EXPECT_THAT(texts, ElementsAre(Pair("--max-slots", "5"), Pair("--threads", "2")));
}

TEST(FlagParserDeathTest, AProgramThatDisagreesWithTheTableAborts) {
  EXPECT_DEATH(FlagParser(Program::kTop, "").Parse({}).IgnoreError(),
               "tandem top does not bind --connect");
  std::string value;
  EXPECT_DEATH(FlagParser(Program::kTop, "").Bind("--target", &value),
               "tandem top binds --target, which the table does not give to it");
}

TEST(FlagParserTest, TheEnvironmentGivesAFlagAndDoesNotTypeIt) {
  const auto parse = [](std::vector<std::string> arguments) {
    auto flags = std::make_unique<FlagParser>(Program::kRouter, "");
    BindRest(*flags, Program::kRouter);
    EXPECT_TRUE(flags->Parse(std::move(arguments)).ok());
    return flags;
  };
  const std::vector<std::string> needed = {"--target", "t", "--verifier", "v"};
  EXPECT_FALSE(parse(needed)->IsGiven("--drafters"));
  const ScopedVariable variable("TANDEM_DRAFTERS", "suffix");
  EXPECT_TRUE(parse(needed)->IsGiven("--drafters"));
  EXPECT_FALSE(parse(needed)->IsTyped("--drafters"));
}

}  // namespace
}  // namespace tandem
