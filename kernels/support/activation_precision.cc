#include "kernels/support/activation_precision.h"

#include <atomic>
#include <string>

#include "kernels/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tandem {
namespace {

std::atomic<bool> rounding_wanted{false};

bool CpuHasAvx512Bf16() {
#if defined(__x86_64__)
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kAvx512Bf16 = 1U << 5;
  return (eax & kAvx512Bf16) != 0;
#else
  return false;
#endif
}

}  // namespace

bool HasBf16Products() {
  static const bool has = CpuHasAvx512Bf16();
  return has && VectorInstructions().starts_with("AVX3");
}

bool RoundsActivations() {
  return rounding_wanted.load(std::memory_order_relaxed) && HasBf16Products();
}

void RoundActivations(bool wanted) { rounding_wanted.store(wanted, std::memory_order_relaxed); }

}  // namespace tandem
