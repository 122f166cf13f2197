// The interface between the tests that every model must pass and the model on a device. Each test
// program links one implementation of this interface.
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
  std::unique_ptr<ThreadPool> threads;  // null if the model needs none
  std::unique_ptr<LanguageModel> model;
  std::unique_ptr<KvPagePool> pages;
};

// Returns the folder of the sources, which have the models. The environment variable is for a
// program that runs on another machine than its build (bench/gpu.py).
inline std::filesystem::path SourceDir() {
  const char* const told = std::getenv("TANDEM_SOURCE_DIR");
  return told != nullptr ? told : TANDEM_SOURCE_DIR;
}

// Returns "skipped: no GPU: …" if these tests cannot run here, or an empty text.
std::string WhyNoDevice();

// Loads a model with pages for `num_caches` caches of `cache_rows` rows.
absl::StatusOr<ModelUnderTest> LoadModelUnderTest(const std::filesystem::path& folder,
                                                  int num_threads, size_t num_caches,
                                                  size_t cache_rows);

struct PathSetting {
  const char* name;
  const char* folder;
  size_t num_tokens;  // more than a block of keys; in one setting also more than a block of rows
  int num_threads;
};
std::vector<PathSetting> PathSettings();

// Returns whether models with millions of weights can run in a test's time.
bool RunsLargeModels();

// Return the folders of tests/golden/model, and the largest allowed error of a logit, relative to
// the largest logit.
std::vector<std::string> GoldenModels();
double GoldenTolerance(const std::string& model);

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_MODEL_MODEL_UNDER_TEST_H_
