#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/support/child_process.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace tandem::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

uint64_t HeaderSize(const std::string& safetensors) {
  uint64_t size = 0;
  for (size_t i = 8; i-- > 0;) size = size << 8 | static_cast<uint8_t>(safetensors[i]);
  return size;
}

TEST(RandomModelTest, HeaderDescribesExactlyTheBytesOfTheFile) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const TempDir folder;
    RandomModelSpec spec;
    spec.dtype = dtype;
    spec.attention_bias = spec.mlp_bias = true;
    spec.tied_embeddings = false;
    WriteRandomModel(folder.path(), spec);
    const std::string file = ReadFile(folder / "model.safetensors");
    const uint64_t header_size = HeaderSize(file);
    EXPECT_EQ(header_size % 8, 0u);
    const auto header = nlohmann::json::parse(file.substr(8, header_size));
    uint64_t end = 0;
    for (const auto& [name, tensor] : header.items()) {
      if (name == "__metadata__") continue;
      EXPECT_EQ(tensor["dtype"], Name(dtype));
      end = std::max(end, tensor["data_offsets"][1].get<uint64_t>());
    }
    EXPECT_EQ(file.size(), 8 + header_size + end);
    EXPECT_EQ(header.size(), 1u + 1 + 1 + 1 + spec.num_layers * (9 + 7));
  }
}

TEST(RandomModelTest, WeightsDependOnTheSeedAndNotOnTheShards) {
  const auto weights = [](uint64_t seed, size_t num_shards) {
    const TempDir folder;
    RandomModelSpec spec;
    spec.seed = seed;
    spec.num_shards = num_shards;
    WriteRandomModel(folder.path(), spec);
    std::string all;
    if (num_shards == 1) {
      const std::string file = ReadFile(folder / "model.safetensors");
      return file.substr(8 + HeaderSize(file));
    }
    for (size_t i = 1; i <= num_shards; ++i) {
      const std::string file = ReadFile(folder / ("model-0000" + std::to_string(i) + "-of-0000" +
                                                  std::to_string(num_shards) + ".safetensors"));
      all += file.substr(8 + HeaderSize(file));
    }
    return all;
  };
  EXPECT_EQ(weights(1, 1), weights(1, 3));
  EXPECT_NE(weights(1, 1), weights(2, 1));
}

TEST(RandomModelTest, TokenizerHasOneEntryForEachIdAndTheSpecialOnesLast) {
  for (size_t vocabulary_size : {5, 64, 258, 300}) {
    const TempDir folder;
    RandomModelSpec spec;
    spec.vocabulary_size = vocabulary_size;
    WriteRandomModel(folder.path(), spec);
    const auto tokenizer = nlohmann::json::parse(ReadFile(folder / "tokenizer.json"));
    EXPECT_EQ(tokenizer["model"]["vocab"].size(), vocabulary_size - 2);
    std::vector<bool> seen(vocabulary_size);
    for (const auto& [entry, id] : tokenizer["model"]["vocab"].items()) seen[id] = true;
    for (const auto& token : tokenizer["added_tokens"]) seen[token["id"]] = true;
    EXPECT_EQ(std::count(seen.begin(), seen.end(), false), 0);
    EXPECT_EQ(tokenizer["added_tokens"][1]["content"], "<|end_of_text|>");
    if (vocabulary_size < 258) {
      EXPECT_EQ(tokenizer["model"]["vocab"]["a"], 0);
    }
  }
}

TEST(ChildProcessTest, ReadsTheReadyLineAndTheExitCode) {
  ChildProcess child({"/bin/sh", "-c", "echo starting; echo \"ready: $PLACE\"; exit 3"},
                     {"PLACE=here"});
  EXPECT_EQ(child.WaitReady(), "here");
  EXPECT_EQ(child.Wait(seconds(10)), 3);
}

TEST(ChildProcessTest, ReportsTheOutputIfTheLineNeverComes) {
  ChildProcess child({"/bin/sh", "-c", "echo no luck"});
  try {
    child.WaitReady();
    FAIL() << "the line was never printed";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("no luck"), std::string::npos);
  }
}

TEST(ChildProcessTest, WaitsNoLongerThanTheDeadline) {
  ChildProcess child({"/bin/sh", "-c", "exec sleep 60"});
  EXPECT_THROW(child.WaitForLine("never", milliseconds(20)), std::runtime_error);
  EXPECT_EQ(child.Wait(milliseconds(20)), std::nullopt);
  child.Signal(SIGKILL);
  EXPECT_EQ(child.Wait(seconds(10)), 128 + SIGKILL);
}

}  // namespace
}  // namespace tandem::testing
