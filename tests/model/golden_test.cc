// Compares logits with those of Hugging Face's transformers (tests/golden/make_model_golden.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "common/model/checkpoint/safetensors.h"
#include "common/model/language_model.h"
#include "kernels/embedding.h"
#include "tests/model/model_under_test.h"

namespace tandem {
namespace {

const std::filesystem::path kGolden = testing::SourceDir() / "tests" / "golden" / "model";
const std::filesystem::path kTales = testing::SourceDir() / "models" / "tales";

struct Expected {
  std::vector<int32_t> input_ids;
  std::vector<int32_t> positions;
  std::vector<float> logits;  // [positions, vocabulary]
};

std::vector<int32_t> Ids(const Tensor& tensor) {
  std::vector<int32_t> ids(tensor.bytes / sizeof(int32_t));
  std::memcpy(ids.data(), tensor.data, tensor.bytes);
  return ids;
}

Expected ReadExpected(const std::filesystem::path& path) {
  const auto file = Safetensors::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  if (!file.ok()) return {};
  const auto& tensors = (*file)->tensors();
  Expected expected{Ids(tensors.at("input_ids")), Ids(tensors.at("positions")), {}};
  const Tensor& logits = tensors.at("logits");
  const DType dtype = logits.dtype == "F16" ? DType::kF16 : DType::kF32;
  expected.logits.resize(logits.bytes / SizeOf(dtype));
  const int32_t row = 0;
  Embed({.table = logits.data,
         .dtype = dtype,
         .size = expected.logits.size(),
         .ids = &row,
         .rows = 1,
         .out = expected.logits.data(),
         .out_stride = expected.logits.size()});
  return expected;
}

// Checks the largest error of a logit, relative to the largest logit.
void ExpectLogits(const std::filesystem::path& folder, const std::filesystem::path& expected_path,
                  double tolerance) {
  if (const std::string why = testing::WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
  const Expected expected = ReadExpected(expected_path);
  const size_t rows = expected.input_ids.size();
  const auto loaded = testing::LoadModelUnderTest(folder, 2, 1, rows);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  LanguageModel* const model = loaded->model.get();
  const size_t vocabulary = model->description().vocabulary_size;
  ASSERT_EQ(expected.logits.size(), expected.positions.size() * vocabulary);
  ASSERT_GE(expected.positions.size(), 16u);

  KvCache cache(loaded->pages.get(), rows);
  const ForwardItem item = {.cache = &cache,
                            .token_ids = expected.input_ids,
                            .parents = {},
                            .num_logits = expected.input_ids.size()};
  const auto logits = model->Forward({&item, 1});
  ASSERT_TRUE(logits.ok()) << logits.status();
  ASSERT_EQ(logits->rows, expected.input_ids.size());

  double error = 0;
  double scale = 0;
  for (size_t i = 0; i < expected.positions.size(); ++i) {
    const float* row = logits->row(static_cast<size_t>(expected.positions[i]));
    for (size_t v = 0; v < vocabulary; ++v) {
      const double want = expected.logits[i * vocabulary + v];
      ASSERT_TRUE(std::isfinite(row[v]));
      error = std::max(error, std::abs(row[v] - want));
      scale = std::max(scale, std::abs(want));
    }
  }
  std::cout << "largest error " << error / scale << " of the largest logit, " << scale << "\n";
  EXPECT_LE(error / scale, tolerance);
}

class GoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, LogitsEqualThoseOfTransformers) {
  const std::filesystem::path folder = kGolden / GetParam();
  // Both sides compute in F32 from the same weights of any type. Only rounding may differ.
  ExpectLogits(folder, folder / "expected.safetensors", testing::GoldenTolerance(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Settings, GoldenTest, ::testing::ValuesIn(testing::GoldenModels()),
                         [](const auto& setting) { return setting.param; });

// The expected logits are stored as F16, which rounds each by up to 5e-4 of its value. On a GPU,
// keys and values of these models are BF16: on an H200, the errors were 8e-4 and 1.9e-3.
double TalesTolerance() { return std::clamp(testing::GoldenTolerance("bf16_tales"), 1e-3, 4e-3); }

TEST(GoldenTalesTest, TargetLogitsEqualThoseOfTransformers) {
  if (!testing::RunsLargeModels()) GTEST_SKIP() << "too large for the shim";
  ExpectLogits(kTales / "target", kGolden / "tales_target.safetensors", TalesTolerance());
}

TEST(GoldenTalesTest, DraftLogitsEqualThoseOfTransformers) {
  if (!testing::RunsLargeModels()) GTEST_SKIP() << "too large for the shim";
  ExpectLogits(kTales / "draft", kGolden / "tales_draft.safetensors", TalesTolerance());
}

}  // namespace
}  // namespace tandem
