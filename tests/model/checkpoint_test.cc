#include "common/model/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/model/files.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::SafetensorsBytes;

class CheckpointTest : public ::testing::Test {
 protected:
  // Writes a shard with one tensor of this name.
  void WriteShard(const std::string& file, const std::string& tensor) {
    testing::WriteFile(
        folder_ / file,
        SafetensorsBytes(R"({")" + tensor + R"(":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
                         4));
  }

  void WriteIndex(const std::string& weight_map) {
    testing::WriteFile(folder_ / "model.safetensors.index.json",
                       R"({"metadata":{"total_size":8},"weight_map":)" + weight_map + "}");
  }

  void ExpectRefused(const std::string& file, const std::string& fault) {
    const auto opened = Checkpoint::Open(folder_.path());
    ASSERT_FALSE(opened.ok()) << "want: " << fault;
    EXPECT_THAT(std::string(opened.status().message()), AllOf(HasSubstr(file), HasSubstr(fault)));
  }

  testing::TempDir folder_;
};

TEST_F(CheckpointTest, FindsTensorsInTheirShards) {
  WriteShard("one.safetensors", "a");
  WriteShard("two.safetensors", "b");
  WriteIndex(R"({"a":"one.safetensors","b":"two.safetensors"})");
  const auto opened = Checkpoint::Open(folder_.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_TRUE((*opened)->Get("a").ok());
  EXPECT_THAT((*opened)->FileOf("b"), HasSubstr("two.safetensors"));
  EXPECT_EQ((*opened)->mapped_bytes(), std::filesystem::file_size(folder_ / "one.safetensors") +
                                           std::filesystem::file_size(folder_ / "two.safetensors"));
  const auto missing = (*opened)->Get("c");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(
      std::string(missing.status().message()),
      AllOf(HasSubstr("model.safetensors.index.json"), HasSubstr("tensor \"c\" is missing")));
}

TEST_F(CheckpointTest, PrefersTheSingleFileToTheIndex) {
  WriteShard("model.safetensors", "single");
  WriteIndex(R"({"a":"../elsewhere"})");
  const auto opened = Checkpoint::Open(folder_.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_TRUE((*opened)->Has("single"));
}

TEST_F(CheckpointTest, RefusesAFolderWithoutWeights) {
  ExpectRefused("", "has neither model.safetensors nor model.safetensors.index.json");
}

TEST_F(CheckpointTest, RefusesShardNamesThatLeadElsewhere) {
  WriteShard("one.safetensors", "a");
  for (const char* name : {"../one.safetensors", "..", ".", "", "sub/one.safetensors",
                           "/etc/passwd", "a\\\\b", "one\\u0000.safetensors", "x..y"}) {
    WriteIndex(R"({"a":")" + std::string(name) + R"("})");
    ExpectRefused("model.safetensors.index.json", "weight_map: \"a\" is in \"");
  }
}

TEST_F(CheckpointTest, RefusesABrokenIndex) {
  for (const char* weight_map : {"{}", "[]", "null", "7"}) {
    WriteIndex(weight_map);
    ExpectRefused("model.safetensors.index.json", "weight_map is missing, empty or not an object");
  }
  WriteIndex(R"({"a":7})");
  ExpectRefused("model.safetensors.index.json", "weight_map: \"a\" is not a string");
  testing::WriteFile(folder_ / "model.safetensors.index.json", "[]");
  ExpectRefused("model.safetensors.index.json", "weight_map is missing");
  testing::WriteFile(folder_ / "model.safetensors.index.json", "{\"weight_map\":");
  ExpectRefused("model.safetensors.index.json", "at \"weight_map\": not valid JSON");
  WriteIndex(R"({"a":"one.safetensors","a":"two.safetensors"})");
  ExpectRefused("model.safetensors.index.json", "at \"a\": key given twice");
  testing::WriteFile(folder_ / "model.safetensors.index.json", std::string(5 << 20, ' '));
  ExpectRefused("model.safetensors.index.json", "has 5242880 bytes of JSON (at most 4194304)");
  testing::WriteFile(folder_ / "model.safetensors.index.json", std::string(1 << 20, '['));
  ExpectRefused("model.safetensors.index.json", "nested deeper than 16 levels");
}

TEST_F(CheckpointTest, RefusesAnIndexThatDisagreesWithItsShards) {
  WriteShard("one.safetensors", "a");
  WriteIndex(R"({"a":"one.safetensors","b":"one.safetensors"})");
  ExpectRefused("model.safetensors.index.json", "weight_map: \"b\" is not in one.safetensors");
  WriteIndex(R"({"a":"absent.safetensors"})");
  ExpectRefused("absent.safetensors", "cannot be opened");
  WriteShard("two.safetensors", "a");
  WriteIndex(R"({"a":"one.safetensors","b":"two.safetensors"})");
  ExpectRefused("two.safetensors", "tensor \"a\" is also in");
}

}  // namespace
}  // namespace tandem
