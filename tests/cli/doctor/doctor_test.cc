#include "services/cli/doctor/doctor_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "services/cli/doctor/machine_report.h"
#include "services/cli/doctor/memory_speed.h"
#include "services/cli/doctor/pair_advice.h"
#include "tests/support/temp_dir.h"

namespace tandem::cli {
namespace {

using tandem::testing::TempDir;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

void Write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST(MachineReportTest, ReadsTheFilesOfTheSystem) {
  const TempDir root;
  Write(root / "proc/cpuinfo",
        "processor\t: 0\nmodel name\t: A Processor\nflags\t\t: fpu avx2 avx512f avx512_bf16\n"
        "processor\t: 1\nmodel name\t: Another\n");
  Write(root / "proc/meminfo", "MemTotal:       4194304 kB\nMemAvailable:   2097152 kB\n");
  Write(root / "sys/fs/cgroup/memory.max", "max\n");
  Write(root / "proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t A GPU\n");
  Write(root / "tmp/nvidia-mps/control", "");
  unsetenv("CUDA_MPS_PIPE_DIRECTORY");
  const MachineReport report = InspectMachine(root.path());
  EXPECT_EQ(report.processor, "A Processor");
  EXPECT_THAT(report.instructions, ElementsAre("AVX2", "AVX-512", "BF16"));
  EXPECT_GT(report.num_cores, 0);
  EXPECT_EQ(report.memory_bytes, uint64_t{4} << 30);
  EXPECT_EQ(report.available_bytes, uint64_t{2} << 30);
  EXPECT_THAT(report.gpus, ElementsAre("A GPU"));
  EXPECT_TRUE(report.has_mps);
  EXPECT_GT(report.max_open_files, 0u);
}

TEST(MachineReportTest, AControlGroupCountsIfItHasLess) {
  const TempDir root;
  Write(root / "proc/meminfo", "MemTotal:       4194304 kB\nMemAvailable:   2097152 kB\n");
  Write(root / "sys/fs/cgroup/memory.max", "1073741824\n");
  Write(root / "sys/fs/cgroup/memory.current", "1073741000\n");
  const MachineReport report = InspectMachine(root.path());
  EXPECT_EQ(report.memory_bytes, uint64_t{1} << 30);
  EXPECT_EQ(report.available_bytes, 824u);
}

TEST(MachineReportTest, WhatCannotBeReadIsLeftOut) {
  const TempDir root;
  const MachineReport report = InspectMachine(root.path());
  EXPECT_EQ(report.processor, "");
  EXPECT_EQ(report.memory_bytes, 0u);
  EXPECT_THAT(report.gpus, ElementsAre());
  EXPECT_FALSE(report.has_mps);
}

TEST(MemorySpeedTest, AMachineReadsMoreThanAGigabytePerSecond) {
  // On a loaded machine, both threads may wait for the whole of a measurement.
  double most = 0;
  for (int attempt = 0; attempt < 40 && most <= 1e9; ++attempt) {
    most = std::max(most, MeasureReadBytesPerSecond(2, 0.05, 4 << 20));
  }
  EXPECT_GT(most, 1e9);
}

constexpr RoundModel kRound = {
    .bytes_per_second = 40e9, .exchange_seconds = 0.0002, .extra_row_fraction = 0.03};

TEST(PairAdviceTest, ALargeTargetWithASmallDraftGains) {
  const PairAdvice advice =
      AdvisePair({"t", "d", 16'000'000'000, 1'000'000'000, 0.7}, kRound, uint64_t{64} << 30);
  EXPECT_TRUE(advice.fits);
  EXPECT_DOUBLE_EQ(advice.plain_seconds, 0.4 + kRound.exchange_seconds);
  EXPECT_GE(advice.draft_length, 3);
  EXPECT_GT(advice.speedup, 1.8);
  EXPECT_LT(advice.speedup, 1 / (1 - 0.7)) << "a round has no more tokens than that";
}

TEST(PairAdviceTest, ADraftAsLargeAsItsTargetGainsNothing) {
  const PairAdvice advice =
      AdvisePair({"t", "d", 1'000'000'000, 1'000'000'000, 0.9}, kRound, uint64_t{64} << 30);
  EXPECT_EQ(advice.draft_length, 0);
  EXPECT_EQ(advice.speedup, 1);
}

TEST(PairAdviceTest, MessagesCanCostMoreThanDraftsGain) {
  const ModelPair tiny = {"t", "d", 4'000'000, 400'000, 0.4};
  EXPECT_EQ(AdvisePair(tiny, kRound, uint64_t{1} << 30).draft_length, 0);
}

TEST(PairAdviceTest, APlainRoundHasMessagesToo) {
  // The passes take no time, so all of it is exchanges: one of a plain round, two of a drafted one.
  const ModelPair pair = {"t", "d", 0, 0, 1};
  EXPECT_DOUBLE_EQ(AdvisePair(pair, kRound, uint64_t{1} << 30).speedup, 17.0 / 2);
}

TEST(PairAdviceTest, WeightsMustFitBesideKvCaches) {
  const ModelPair pair = {"t", "d", 8'000'000'000, 1'000'000'000, 0.7};
  EXPECT_FALSE(AdvisePair(pair, kRound, 9'500'000'000).fits);
  EXPECT_TRUE(AdvisePair(pair, kRound, 12'000'000'000).fits);
}

TEST(AdviceTest, NamesThePairAndWhatIsMissing) {
  MachineReport machine{.instructions = {"AVX2"}, .gpus = {"A GPU"}, .max_open_files = 1024};
  const PairAdvice pays = {.pair = {"big", "small", 1, 1, 0.7},
                           .fits = true,
                           .plain_seconds = 1,
                           .draft_length = 4,
                           .speedup = 2};
  EXPECT_THAT(Advice(machine, {pays}),
              ElementsAre(HasSubstr("Serve big with the drafter small: expected 2.00×"),
                          HasSubstr("MPS"), HasSubstr("ulimit -n")));
  machine.has_mps = true;
  machine.max_open_files = 1 << 20;
  EXPECT_THAT(Advice(machine, {}), ElementsAre(HasSubstr("No pair")));
  machine.instructions.clear();
  EXPECT_THAT(Advice(machine, {pays}), Contains(HasSubstr("AVX2")));
}

TEST(AdviceTest, ThePairOfTheUserComesFirst) {
  const MachineReport machine{.instructions = {"AVX2"}, .max_open_files = 1 << 20};
  const PairAdvice known = {
      .pair = {"big", "small", 1, 1, 0.7}, .fits = true, .draft_length = 4, .speedup = 2};
  PairAdvice users = {.pair = {"/a/target", "/a/draft", 1, 1, 0.7, /*is_users=*/true},
                      .fits = true,
                      .draft_length = 2,
                      .speedup = 1.25};
  const std::string folders = "--target /a/target --draft /a/draft";
  EXPECT_THAT(Advice(machine, {users, known}),
              ElementsAre(AllOf(HasSubstr("1.25 times"), HasSubstr("tandem serve " + folders))))
      << "no other pair is recommended";
  users.draft_length = 0;
  EXPECT_THAT(Advice(machine, {users, known}).front(),
              AllOf(HasSubstr("not expected to gain"), HasSubstr("tandem bench " + folders)));
  users.fits = false;
  EXPECT_THAT(Advice(machine, {users, known}).front(), HasSubstr("does not fit"));
}

TEST(DoctorTest, PrintsThisMachine) {
  std::istringstream in;
  std::ostringstream out, err;
  Console console{.in = in, .out = out, .err = err};
  ASSERT_EQ(Doctor({.color = ColorMode::kNever}, console), kExitOk);
  for (const char* part : {"processor", "GB/s", "Llama-3.1-8B", "What to do"}) {
    EXPECT_THAT(out.str(), HasSubstr(part));
  }
  std::ostringstream json;
  Console for_json{.in = in, .out = json, .err = err};
  ASSERT_EQ(Doctor({.json = true}, for_json), kExitOk);
  const auto parsed = nlohmann::json::parse(json.str());
  EXPECT_GT(parsed.at("read_bytes_per_second").get<double>(), 1e9);
  EXPECT_FALSE(parsed.at("pairs").empty());
}

TEST(DoctorTest, JudgesThePairThatIsGiven) {
  std::istringstream in;
  std::ostringstream out, err;
  Console console{.in = in, .out = out, .err = err};
  const std::string models = TANDEM_SOURCE_DIR "/models/tales/";
  ASSERT_EQ(
      Doctor({.target = models + "target", .draft = models + "draft", .color = ColorMode::kNever},
             console),
      kExitOk);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("your target"), HasSubstr(" MB "),
                               HasSubstr("tandem bench --target " + models + "target")));
}

TEST(DoctorTest, RefusesWhatIsNoModel) {
  std::istringstream in;
  std::ostringstream out, err;
  Console console{.in = in, .out = out, .err = err};
  EXPECT_EQ(Doctor({.target = "/no/such", .draft = "/no/such"}, console), kExitUsage);
  EXPECT_THAT(err.str(), HasSubstr("/no/such does not exist"));
}

}  // namespace
}  // namespace tandem::cli
