#include "common/flags/flag_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace tandem {
namespace {

using ::testing::ElementsAre;

const Flag& FlagOf(std::string_view name, Program program) {
  const Flag* flag = FindFlag(name, program);
  EXPECT_NE(flag, nullptr) << name;
  return *flag;
}

std::string Problem(const Flag& flag, const std::string& text) {
  return std::string(CheckFlagValue(flag, text).message());
}

TEST(FlagValueTest, AnErrorNamesTheFlagTheGivenTextAndTheAllowedValues) {
  EXPECT_EQ(Problem(FlagOf("--max-slots", Program::kRouter), "0"),
            "--max-slots: got \"0\", allowed: a whole number from 1 to 1024");
  EXPECT_EQ(Problem(FlagOf("--max-queue", Program::kRouter), "many"),
            "--max-queue: got \"many\", allowed: a whole number of at least 0");
  EXPECT_EQ(Problem(FlagOf("--step-seconds", Program::kRouter), "0"),
            "--step-seconds: got \"0\", allowed: a number above 0");
  EXPECT_EQ(Problem(FlagOf("--heartbeat-timeout", Program::kServe), "0.5"),
            "--heartbeat-timeout: got \"0.5\", allowed: 0, or a number from 1 to 86400");
  EXPECT_EQ(Problem(FlagOf("--draft-length", Program::kServe), "17"),
            "--draft-length: got \"17\", allowed: auto, or a whole number from 0 to 16");
  EXPECT_EQ(Problem(FlagOf("--transport", Program::kServe), "pigeon"),
            "--transport: got \"pigeon\", allowed: auto, cuda_ipc, shm or inline");
  EXPECT_EQ(Problem(FlagOf("--gpu-memory-bytes", Program::kDraft), "4X"),
            "--gpu-memory-bytes: got \"4X\", allowed: a number of bytes such as 512M or 4G");
  EXPECT_EQ(Problem(FlagOf("--insecure", Program::kRouter), "perhaps"),
            "--insecure: got \"perhaps\", allowed: true or false");
}

TEST(FlagValueTest, ValuesAtTheLimitsAreTaken) {
  for (const char* text : {"1", "1024"}) {
    EXPECT_EQ(Problem(FlagOf("--max-slots", Program::kRouter), text), "");
  }
  for (const char* text : {"0", "1", "86400", "2.5"}) {
    EXPECT_EQ(Problem(FlagOf("--heartbeat-timeout", Program::kRouter), text), "");
  }
  for (const char* text : {"auto", "0", "16"}) {
    EXPECT_EQ(Problem(FlagOf("--draft-length", Program::kRouter), text), "");
  }
  EXPECT_EQ(Problem(FlagOf("--top-k", Program::kGenerate), "-1"), "");
  EXPECT_EQ(Problem(FlagOf("--seed", Program::kGenerate), "18446744073709551615"), "");
}

TEST(FlagValueTest, NumbersAreWholeTexts) {
  const Flag& slots = FlagOf("--max-slots", Program::kRouter);
  for (const char* text : {"", " 1", "1 ", "1.5", "4x", "-1", "1e2", "99999999999999999999"}) {
    EXPECT_NE(Problem(slots, text), "") << text;
  }
  const Flag& fraction = FlagOf("--audit-fraction", Program::kRouter);
  for (const char* text : {"", "nan", "inf", "0.5x", "1.01", "-0.1"}) {
    EXPECT_NE(Problem(fraction, text), "") << text;
  }
}

TEST(FlagValueTest, SizesHaveUnitsThatArePowersOf1024) {
  const Flag& flag = FlagOf("--kv-cache-bytes", Program::kDraft);
  const auto bytes = [&](const std::string& text) {
    uint64_t value = 0;
    EXPECT_EQ(ParseFlagValue(flag, text, &value), absl::OkStatus());
    return value;
  };
  EXPECT_EQ(bytes("0"), 0u);
  EXPECT_EQ(bytes("100000"), 100000u);
  EXPECT_EQ(bytes("7b"), 7u);
  EXPECT_EQ(bytes("3K"), 3u << 10);
  EXPECT_EQ(bytes("512M"), 512u << 20);
  EXPECT_EQ(bytes("512 MiB"), 512u << 20);
  EXPECT_EQ(bytes("4gb"), uint64_t{4} << 30);
  EXPECT_EQ(bytes("15E"), uint64_t{15} << 60);
  for (const char* text : {"", "G", "-1", "1.5G", "4X", "4Gx", "16E", "4G4"}) {
    EXPECT_NE(Problem(flag, text), "") << text;
  }
}

TEST(FlagValueTest, ANumberThatTheVariableCannotHoldIsRefused) {
  const Flag& flag = FlagOf("--max-queue", Program::kRouter);
  uint32_t small = 7;
  EXPECT_EQ(std::string(ParseFlagValue(flag, "4294967296", &small).message()),
            "--max-queue: got \"4294967296\", allowed: at most 4294967295");
  EXPECT_EQ(small, 7u);
  uint64_t large = 0;
  EXPECT_EQ(ParseFlagValue(flag, "4294967296", &large), absl::OkStatus());
  EXPECT_EQ(large, uint64_t{1} << 32);
}

TEST(FlagValueTest, ListsAreSplitAtTheirCommas) {
  EXPECT_THAT(SplitFlagValues(FlagOf("--clients", Program::kBenchServe), "1,2"),
              ElementsAre("1", "2"));
  EXPECT_THAT(SplitFlagValues(FlagOf("--stop", Program::kGenerate), "1,2"), ElementsAre("1,2"));
}

}  // namespace
}  // namespace tandem
