#include "common/model/cuda/check/device_check.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/cuda/check/check_attention.h"
#include "common/model/cuda/check/check_memory.h"
#include "common/model/cuda/check/check_products.h"
#include "common/status.h"

namespace tandem {
namespace {

absl::Status CheckKernels(const DeviceInfo& device, const KernelSettings& settings,
                          CheckMemory& memory) {
  if (settings.weights == DType::kBF16) {
    TANDEM_RETURN_IF_ERROR(CheckProducts(device, settings, memory));
  }
  return CheckAttention(settings, memory);
}

}  // namespace

absl::Status CheckDevice(const DeviceInfo& device, const KernelSettings& settings,
                         const DeviceStream& stream) {
  const size_t bytes = BytesToCheckProducts(settings) + BytesToCheckAttention(settings);
  TANDEM_ASSIGN_OR_RETURN(CheckMemory memory, CheckMemory::Create(bytes, &stream));
  const absl::Status checked = CheckKernels(device, settings, memory);
  // The memory must outlive the work, also after an error.
  const absl::Status done = stream.Wait();
  if (absl::IsFailedPrecondition(checked)) {
    return FailedPrecondition(
        absl::StrCat("the GPU's kernels compute wrong results, so it is not used: ",
                     std::string(checked.message()), " (", device.name, ", compute capability ",
                     device.capability / 10, ".", device.capability % 10, ", driver for CUDA ",
                     device.driver_version / 1000, ".", device.driver_version % 1000 / 10,
                     "). Use --backend cpu, and please report this message"));
  }
  return checked.ok() ? done : checked;
}

}  // namespace tandem
