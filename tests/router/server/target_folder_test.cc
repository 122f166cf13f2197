#include "services/router/server/target_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TargetFolderTest : public ::testing::Test {
 protected:
  TargetFolderTest() {
    std::filesystem::copy_file(TANDEM_SOURCE_DIR "/tests/golden/tokenizer/gpt2/tokenizer.json",
                               folder_ / "tokenizer.json");
  }
  absl::StatusOr<TargetFolder> LoadWith(const std::string& config) {
    std::ofstream(folder_ / "config.json") << config;
    return TargetFolder::Load(folder_.path());
  }
  std::string ErrorOf(const std::string& config) {
    return std::string(LoadWith(config).status().message());
  }

  testing::TempDir folder_;
};

TEST_F(TargetFolderTest, EndsOfTextAreANumberOrAList) {
  EXPECT_THAT(LoadWith(R"({"eos_token_id": 3})")->end_of_text_ids, ElementsAre(3));
  EXPECT_THAT(LoadWith(R"({"eos_token_id": [3, 0]})")->end_of_text_ids, ElementsAre(3, 0));
  EXPECT_THAT(LoadWith(R"({"eos_token_id": null})")->end_of_text_ids, ElementsAre());
}

TEST_F(TargetFolderTest, WhatIsNoTokenIdIsShown) {
  EXPECT_THAT(ErrorOf(R"({"eos_token_id": -1})"), HasSubstr("config.json: eos_token_id: got -1"));
  EXPECT_THAT(ErrorOf(R"({"eos_token_id": 1000000})"), HasSubstr("got 1000000"));
  EXPECT_THAT(ErrorOf(R"({"eos_token_id": "x"})"), HasSubstr("got \"x\""));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("config.json: is not a JSON object"));
}

TEST_F(TargetFolderTest, DeepAndLongValuesAreRefusedInAFewWords) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  for (const std::string& value : {deep, "\"" + std::string(500'000, 'x') + "\""}) {
    const std::string error = ErrorOf("{\"eos_token_id\": [" + value + "]}");
    EXPECT_THAT(error, HasSubstr("eos_token_id"));
    EXPECT_LT(error.size(), 1000u);
  }
}

}  // namespace
}  // namespace tandem
