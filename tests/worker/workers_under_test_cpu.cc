#include "common/status.h"
#include "tests/worker/model_doubles.h"
#include "tests/worker/workers_under_test.h"

namespace tandem::testing {

std::string WhyNoDevice() { return ""; }
bool CanFailPasses() { return true; }
bool RunsFast() { return true; }
std::string BackendUnderTest() { return "cpu"; }

absl::StatusOr<std::unique_ptr<WorkerModel>> LoadWorkerUnderTest(
    const WorkerModelOptions& options, const std::optional<Faults>& faults) {
  auto threads = std::make_unique<ThreadPool>(options.threads);
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<LanguageModel> model,
                          LanguageModel::Load(options.folder, threads.get()));
  if (faults.has_value()) {
    model = std::make_unique<PoisonedModel>(std::move(model), faults->poison, faults->bomb);
  }
  TANDEM_ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::Load(options.folder));
  return WorkerModel::Create(options, std::move(threads), std::move(model), std::move(tokenizer));
}

std::unique_ptr<Proposer> MakeProposerUnderTest(LanguageModel& /*model*/) { return nullptr; }
std::unique_ptr<Judge> MakeJudgeUnderTest(LanguageModel& /*model*/) { return nullptr; }

}  // namespace tandem::testing
