// The tests that every model must pass, on whichever device: each test program links one
// implementation of this.
#ifndef TANDEM_TESTS_MODEL_MODEL_UNDER_TEST_H_
#define TANDEM_TESTS_MODEL_MODEL_UNDER_TEST_H_

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/kv/kv_page_pool.h"
#include "common/model/language_model.h"
#include "kernels/thread_pool.h"

namespace tandem::testing {

struct ModelUnderTest {
  std::unique_ptr<ThreadPool> threads;  // null where the model needs none
  std::unique_ptr<LanguageModel> model;
  std::unique_ptr<KvPagePool> pages;
};

// The folder of the sources, which have the models. The variable is for a program that runs
// elsewhere than it was built (bench/gpu.py).
inline std::filesystem::path SourceDir() {
  const char* const told = std::getenv("TANDEM_SOURCE_DIR");
  return told != nullptr ? told : TANDEM_SOURCE_DIR;
}

// "skipped: no GPU: …" where these tests cannot run here; else empty.
std::string WhyNoDevice();

// With pages for `num_caches` caches of `cache_rows` rows.
absl::StatusOr<ModelUnderTest> LoadModelUnderTest(const std::filesystem::path& folder,
                                                  int num_threads, size_t num_caches,
                                                  size_t cache_rows);

struct PathSetting {
  const char* name;
  const char* folder;
  size_t num_tokens;  // past a block of keys; once past a block of rows, too
  int num_threads;
};
std::vector<PathSetting> PathSettings();

// Whether models of millions of weights can be run in a test's time.
bool RunsLargeModels();

// Folders of tests/golden/model, and how far a logit may be off, relative to the largest.
std::vector<std::string> GoldenModels();
double GoldenTolerance(const std::string& model);

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_MODEL_MODEL_UNDER_TEST_H_
