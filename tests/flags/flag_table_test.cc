#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "common/flags/flag.h"
#include "common/flags/flag_value.h"
#include "services/router/server/router_options.h"

namespace tandem {
namespace {

std::vector<Program> AllPrograms() {
  std::vector<Program> programs;
  for (int i = 0; i < kNumPrograms; ++i) programs.push_back(static_cast<Program>(i));
  return programs;
}

TEST(FlagTableTest, EveryDefaultIsAValueThatTheFlagTakes) {
  for (const Flag& flag : AllFlags()) {
    if (flag.fallback.empty()) continue;
    for (const std::string& text : SplitFlagValues(flag, std::string(flag.fallback))) {
      EXPECT_EQ(CheckFlagValue(flag, text), absl::OkStatus());
    }
  }
}

TEST(FlagTableTest, AFlagIsRequiredOrHasOneKindOfDefault) {
  for (const Flag& flag : AllFlags()) {
    EXPECT_LE(
        (flag.required ? 1 : 0) + (flag.fallback.empty() ? 0 : 1) + (flag.computed.empty() ? 0 : 1),
        1)
        << flag.name;
  }
}

TEST(FlagTableTest, NoProgramTakesTwoFlagsWithTheSameName) {
  for (const Program program : AllPrograms()) {
    std::set<std::string> names;
    std::set<std::string> variables;
    for (const Flag* flag : FlagsOf(program)) {
      EXPECT_TRUE(names.insert(std::string(flag->name)).second) << flag->name;
      const std::string variable = FlagVariable(*flag, program);
      if (!variable.empty()) {
        EXPECT_TRUE(variables.insert(variable).second) << variable;
      }
    }
    EXPECT_FALSE(names.empty()) << ProgramName(program);
  }
}

TEST(FlagTableTest, FlagsOfOneGroupStandTogether) {
  std::set<std::string> groups;
  std::string last;
  for (const Flag& flag : AllFlags()) {
    if (flag.group == last) continue;
    last = flag.group;
    EXPECT_TRUE(groups.insert(last).second) << last << " begins again with " << flag.name;
  }
}

TEST(FlagTableTest, AProcessTakesAHandedOnFlagInTheSameWay) {
  for (const Flag& flag : AllFlags()) {
    if (flag.handed_to.empty()) continue;
    // `tandem bench` starts a server, too, and has help of its own for some flags.
    EXPECT_TRUE(flag.programs.contains(Program::kServe) || flag.programs.contains(Program::kBench))
        << flag.name;
    for (const Program program : AllPrograms()) {
      if (!flag.handed_to.contains(program)) continue;
      const Flag* received = FindFlag(flag.handed_as.empty() ? flag.name : flag.handed_as, program);
      ASSERT_NE(received, nullptr) << flag.name << " of " << ProgramName(program);
      EXPECT_EQ(received->kind, flag.kind) << flag.name;
      EXPECT_EQ(received->words, flag.words) << flag.name;
      EXPECT_GE(flag.least, received->least) << flag.name;
      EXPECT_LE(flag.most, received->most) << flag.name;
    }
  }
}

TEST(FlagTableTest, HelpIsMadeOfSentences) {
  for (const Flag& flag : AllFlags()) {
    EXPECT_GT(flag.help.size(), 20u) << flag.name;
    EXPECT_EQ(flag.help.back(), '.') << flag.name;
    EXPECT_EQ(flag.value.empty(),
              flag.kind == FlagKind::kSwitch ||
                  (flag.kind == FlagKind::kChoice && flag.values == FlagValues::kOne))
        << flag.name;
  }
}

TEST(FlagTableTest, VariablesHaveThePrefixOfTheirProgram) {
  EXPECT_EQ(FlagVariable(*FindFlag("--max-queue", Program::kRouter), Program::kRouter),
            "TANDEM_MAX_QUEUE");
  EXPECT_EQ(FlagVariable(*FindFlag("--threads", Program::kDraft), Program::kDraft),
            "TANDEM_DRAFT_THREADS");
  EXPECT_EQ(FlagVariable(*FindFlag("--threads", Program::kVerifier), Program::kVerifier),
            "TANDEM_VERIFIER_THREADS");
  EXPECT_EQ(FlagVariable(*FindFlag("--connect", Program::kInfo), Program::kInfo), "TANDEM_ADDRESS");
  EXPECT_EQ(FlagVariable(*FindFlag("--exit-with-parent", Program::kDraft), Program::kDraft), "");
}

// The engine and the validator have defaults for code that uses them without flags.
TEST(FlagTableTest, TheRoutersDefaultsAreThoseOfItsParts) {
  std::vector<std::string> arguments = {"tandem-router", "--target", "t", "--verifier", "v"};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  RouterOptions options;
  ASSERT_EQ(ParseCommandLine(static_cast<int>(argv.size()), argv.data(), &options), std::nullopt);
  const EngineOptions engine;
  EXPECT_EQ(options.engine.draft_length, engine.draft_length);
  EXPECT_EQ(options.engine.max_queue, engine.max_queue);
  EXPECT_EQ(options.engine.step_rows, engine.step_rows);
  EXPECT_EQ(options.engine.step_seconds, engine.step_seconds);
  EXPECT_EQ(options.engine.num_cohorts, engine.num_cohorts);
  EXPECT_EQ(options.engine.verifier_timeout_seconds, engine.verifier_timeout_seconds);
  EXPECT_EQ(options.engine.drafter_timeout_seconds, engine.drafter_timeout_seconds);
  EXPECT_EQ(options.engine.max_lost_rounds, engine.max_lost_rounds);
  EXPECT_EQ(options.engine.audit_fraction, engine.audit_fraction);
  EXPECT_EQ(options.engine.workers.max_slots, engine.workers.max_slots);
  EXPECT_EQ(options.engine.workers.heartbeat_timeout_seconds,
            engine.workers.heartbeat_timeout_seconds);
  EXPECT_EQ(options.engine.workers.load_timeout_seconds, engine.workers.load_timeout_seconds);
  EXPECT_FALSE(options.engine.workers.drafter_required);
  const RequestLimits limits;
  EXPECT_EQ(options.limits.max_draft_length, limits.max_draft_length);
  EXPECT_EQ(options.limits.max_prompt_bytes, limits.max_prompt_bytes);
  EXPECT_EQ(options.limits.default_max_tokens, limits.default_max_tokens);
  EXPECT_EQ(options.limits.max_stop_strings, limits.max_stop_strings);
  EXPECT_EQ(options.limits.max_stop_string_bytes, limits.max_stop_string_bytes);
  EXPECT_EQ(options.limits.max_stop_token_ids, limits.max_stop_token_ids);
  EXPECT_EQ(options.limits.max_logit_bias, limits.max_logit_bias);
  EXPECT_EQ(options.limits.max_logprobs, limits.max_logprobs);
  EXPECT_EQ(options.listen_address, "127.0.0.1:50051");
  EXPECT_EQ(options.drain_seconds, 10);
  EXPECT_EQ(options.log.level, "info");
}

}  // namespace
}  // namespace tandem
