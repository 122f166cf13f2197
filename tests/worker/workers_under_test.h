// The workers that the tests of sessions use. Each test program links one implementation of these
// functions, for the CPU or for a GPU.
#ifndef TANDEM_TESTS_WORKER_WORKERS_UNDER_TEST_H_
#define TANDEM_TESTS_WORKER_WORKERS_UNDER_TEST_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "services/draft/proposer.h"
#include "services/verifier/judge.h"
#include "services/worker/worker_model.h"

namespace tandem::testing {

// Tokens that make a model fail in a test.
struct Faults {
  int32_t poison = -1;  // logits after it are not finite
  int32_t bomb = -1;    // a pass that gets it fails, if passes can be made to fail
};

// Returns "skipped: no GPU: …" if these tests cannot run here, and an empty text otherwise.
std::string WhyNoDevice();
bool CanFailPasses();  // true except on a real GPU
// Returns true if a pass takes much less than a tenth of a second.
bool RunsFast();

absl::StatusOr<std::unique_ptr<WorkerModel>> LoadWorkerUnderTest(
    const WorkerModelOptions& options, const std::optional<Faults>& faults);

// Returns "cuda" for a model that computes on a GPU.
std::string BackendUnderTest();

// Returns null to use the session's own proposer or judge.
std::unique_ptr<Proposer> MakeProposerUnderTest(LanguageModel& model);
std::unique_ptr<Judge> MakeJudgeUnderTest(LanguageModel& model);

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_WORKER_WORKERS_UNDER_TEST_H_
