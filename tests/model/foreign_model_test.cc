#include "common/model/checkpoint/foreign_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/model/files.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::WriteFile;

constexpr char kPointer[] =
    "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 2471645608\n";

class ForeignModelTest : public ::testing::Test {
 protected:
  std::string Refusal(const std::filesystem::path& path) {
    const absl::Status status = CheckModelFolder(path);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path.string()));
    return std::string(status.message());
  }

  testing::TempDir folder_;
};

TEST_F(ForeignModelTest, AFolderWithAConfigurationAndWeightsIsLoaded) {
  WriteFile(folder_ / "config.json", "{}");
  WriteFile(folder_ / "model.safetensors", "12345678{}");
  EXPECT_TRUE(CheckModelFolder(folder_.path()).ok());
}

TEST_F(ForeignModelTest, ANameOfAHubIsNoFolder) {
  EXPECT_THAT(Refusal("meta-llama/Llama-3.2-1B"),
              AllOf(HasSubstr("Tandem downloads nothing"),
                    HasSubstr("hf download meta-llama/Llama-3.2-1B --local-dir Llama-3.2-1B")));
  for (const char* no_name : {"/no/such", "./no/such", "no-such", "a/b/c", "../such"}) {
    EXPECT_THAT(Refusal(no_name), HasSubstr("does not exist (want a model's folder"));
  }
}

TEST_F(ForeignModelTest, AFileIsNamedForWhatItIs) {
  WriteFile(folder_ / "m.gguf", "GGUF\x03\0\0\0");
  EXPECT_THAT(Refusal(folder_ / "m.gguf"),
              AllOf(HasSubstr("is a GGUF file"), HasSubstr("original model")));
  WriteFile(folder_ / "model.safetensors", "12345678{}");
  EXPECT_THAT(Refusal(folder_ / "model.safetensors"), HasSubstr("give the folder that it is in"));
  WriteFile(folder_ / "notes.txt", "hello");
  EXPECT_THAT(Refusal(folder_ / "notes.txt"), HasSubstr("is not a folder"));
}

TEST_F(ForeignModelTest, APointerOfGitLfsIsNoFile) {
  WriteFile(folder_ / "config.json", "{}");
  WriteFile(folder_ / "model.safetensors", kPointer);
  EXPECT_THAT(Refusal(folder_.path()), AllOf(HasSubstr("model.safetensors is a Git LFS pointer"),
                                             HasSubstr("git lfs pull")));
}

TEST_F(ForeignModelTest, AFolderWithoutWeightsIsNamedForWhatItHolds) {
  EXPECT_THAT(Refusal(folder_.path()), HasSubstr("has no config.json; it is empty"));
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"m.gguf", "it holds m.gguf, which is a GGUF file"},
      {"adapter_config.json", "it holds an adapter"},
      {"pytorch_model.bin", "it holds pytorch_model.bin, but Tandem reads safetensors"},
      {"snapshots", "give the folder under snapshots/"}};
  for (const auto& [name, what] : cases) {
    testing::TempDir other;
    WriteFile(other / name, "x");
    EXPECT_THAT(Refusal(other.path()), AllOf(HasSubstr("no config.json"), HasSubstr(what)));
    WriteFile(other / "config.json", "{}");
    EXPECT_THAT(Refusal(other.path()),
                AllOf(HasSubstr("neither model.safetensors nor"), HasSubstr(what)));
  }
}

TEST_F(ForeignModelTest, OtherFormatsAreKnownByTheirFirstBytes) {
  EXPECT_THAT(ExplainForeignFile("PK\x03\x04"), HasSubstr("torch.save"));
  EXPECT_THAT(ExplainForeignFile("<!DOCTYPE html>"), HasSubstr("web page"));
  EXPECT_EQ(ExplainForeignFile(std::string("\x10\0\0\0\0\0\0\0{", 9)), "");
  EXPECT_EQ(ExplainForeignFile(""), "");
}

}  // namespace
}  // namespace tandem
