#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/model/model_description.h"
#include "common/status.h"
#include "kernels/device/device.h"
#include "services/draft/cuda_proposer.h"
#include "services/verifier/cuda_judge.h"
#include "services/worker/load_on_gpu.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/workers_under_test.h"
#ifdef TANDEM_SIMT
#include "tests/simt/fake_runtime.h"
#endif

namespace tandem::testing {
namespace {

// Makes the token's embedding NaN, and with it everything that is computed from its row. The folder
// is an F32 model of tests/support/random_model.h, whose first tensor is the embedding.
absl::Status Poison(const std::filesystem::path& folder, int32_t token) {
  TANDEM_ASSIGN_OR_RETURN(const ModelDescription config, ModelDescription::Load(folder));
  std::fstream file(folder / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
  const std::vector<float> nan(config.hidden_size, std::numeric_limits<float>::quiet_NaN());
  const size_t row_bytes = nan.size() * sizeof(float);
  file.seekp(static_cast<std::streamoff>(sizeof(header_bytes) + header_bytes +
                                         static_cast<size_t>(token) * row_bytes));
  file.write(reinterpret_cast<const char*>(nan.data()), static_cast<std::streamsize>(row_bytes));
  file.close();
  return file ? absl::OkStatus() : Internal("cannot poison " + folder.string());
}

#ifdef TANDEM_SIMT
// Makes a call of a pass fail over the shim if the pass is fed the bomb.
class BombedJudge final : public Judge {
 public:
  BombedJudge(std::unique_ptr<Judge> judge, int32_t bomb) : judge_(std::move(judge)), bomb_(bomb) {}

  absl::Status Run(std::span<JudgeTask> tasks) override {
    constexpr uint64_t kCallOfThePass = 3;  // a call after the rows were sent and before the graph
    for (const JudgeTask& task : tasks) {
      const std::span<const int32_t> ids = task.token_ids;
      if (std::find(ids.begin(), ids.end(), bomb_) == ids.end()) continue;
      simt::FailCall(kCallOfThePass, cudaErrorIllegalAddress);
    }
    return judge_->Run(tasks);
  }
  bool checks_draft_rows() const override { return judge_->checks_draft_rows(); }

 private:
  std::unique_ptr<Judge> judge_;
  int32_t bomb_;
};
#endif

int32_t newest_bomb = -1;  // bomb of the model that was loaded last; sessions begin after the load

}  // namespace

std::string WhyNoDevice() {
  const absl::StatusOr<DeviceInfo> device = UseDevice(0);
  return device.ok() ? "" : "skipped: no GPU: " + std::string(device.status().message());
}
bool CanFailPasses() {
#ifdef TANDEM_SIMT
  return true;
#else
  return false;
#endif
}
bool RunsFast() {
  const absl::StatusOr<DeviceInfo> device = UseDevice(0);
  return device.ok() && device->name != "SIMT shim";
}
std::string BackendUnderTest() { return "cuda"; }

absl::StatusOr<std::unique_ptr<WorkerModel>> LoadWorkerUnderTest(
    const WorkerModelOptions& options, const std::optional<Faults>& faults) {
  WorkerModelOptions on_gpu = options;
  on_gpu.backend = "cuda";
  on_gpu.judges = true;
  on_gpu.checks_gpu = false;  // tests/cuda/check does it, and it takes long over the shim
  on_gpu.load_on_gpu = LoadOnGpu;
  TempDir folder;
  newest_bomb = faults.has_value() ? faults->bomb : -1;
  if (faults.has_value()) {
    std::filesystem::copy(options.folder, folder / "poisoned");
    on_gpu.folder = folder / "poisoned";
    on_gpu.name = options.folder.filename();
    TANDEM_RETURN_IF_ERROR(Poison(on_gpu.folder, faults->poison));
  }
  return WorkerModel::Load(on_gpu);
}

std::unique_ptr<Proposer> MakeProposerUnderTest(LanguageModel& model) {
  return MakeCudaProposer(model);
}
std::unique_ptr<Judge> MakeJudgeUnderTest(LanguageModel& model) {
  std::unique_ptr<Judge> judge = MakeCudaJudge(model);
#ifdef TANDEM_SIMT
  if (newest_bomb >= 0) return std::make_unique<BombedJudge>(std::move(judge), newest_bomb);
#endif
  return judge;
}

}  // namespace tandem::testing
