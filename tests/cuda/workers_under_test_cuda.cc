#include <filesystem>
#include <fstream>
#include <limits>
#include <vector>

#include "common/model/model_config.h"
#include "common/status.h"
#include "kernels/cuda/device.h"
#include "services/draft/cuda_proposer.h"
#include "services/verifier/cuda_judge.h"
#include "services/worker/cuda_backend.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/workers_under_test.h"

namespace tandem::testing {
namespace {

// Makes the token's embedding NaN, and with it all that its row leads to. Of a folder of
// tests/support/random_model.h in F32: the embedding is the first of its tensors.
absl::Status Poison(const std::filesystem::path& folder, int32_t token) {
  TANDEM_ASSIGN_OR_RETURN(const ModelConfig config, ModelConfig::Load(folder));
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

}  // namespace

std::string WhyNoDevice() {
  const absl::StatusOr<DeviceInfo> device = UseDevice(0);
  return device.ok() ? "" : "skipped: no GPU: " + std::string(device.status().message());
}
bool CanFailPasses() { return false; }
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
  on_gpu.load_on_gpu = LoadOnGpu;
  TempDir folder;
  if (faults.has_value()) {
    std::filesystem::copy(options.folder, folder / "poisoned");
    on_gpu.folder = folder / "poisoned";
    on_gpu.name = options.folder.filename();
    TANDEM_RETURN_IF_ERROR(Poison(on_gpu.folder, faults->poison));
  }
  return WorkerModel::Load(on_gpu);
}

std::unique_ptr<Proposer> MakeProposerUnderTest(LlamaModel& model) {
  return MakeCudaProposer(model);
}
std::unique_ptr<Judge> MakeJudgeUnderTest(LlamaModel& model) { return MakeCudaJudge(model); }

}  // namespace tandem::testing
