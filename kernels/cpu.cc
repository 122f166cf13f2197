#include "kernels/cpu.h"

#include <sched.h>

#include <algorithm>
#include <string>

#include "hwy/highway.h"
#include "hwy/targets.h"
#include "kernels/amx/matrix_units.h"
#include "kernels/support/activation_precision.h"

namespace tandem {

std::string VectorInstructions() {
  // Targets are bits, and better targets have lower bits. Dispatch takes the best target that was
  // compiled in and that the CPU has.
  const int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(usable & -usable);
}

std::string InstructionSet() {
  if (RoundsActivations()) return VectorInstructions() + "+BF16";
  return VectorInstructions() + (UsesMatrixUnits() ? "+AMX" : "");
}

std::string NumericsId() {
#if defined(__clang__)
  const std::string compiler = "clang-" + std::to_string(__clang_major__);
#else
  const std::string compiler = "gcc-" + std::to_string(__GNUC__);
#endif
  // Increase the number when a change to a kernel changes bits.
  return "cpu/" + InstructionSet() + "/" + compiler + "/1";
}

int DefaultThreads() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0) return 1;
  return std::max(1, CPU_COUNT(&cpus));
}

}  // namespace tandem
