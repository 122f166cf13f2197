#include "kernels/amx/matrix_units.h"

#include <atomic>
#include <string>

#include "kernels/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tandem {
namespace {

std::atomic<bool> allowed_units{false};

#if defined(__x86_64__)
bool CpuHasAmxBf16() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kAmxBf16 = 1U << 22;
  constexpr unsigned kAmxTile = 1U << 24;
  return (edx & kAmxBf16) != 0 && (edx & kAmxTile) != 0;
}

// Linux enables the tile registers only for a process that asks
// (Documentation/arch/x86/xstate.rst).
bool SystemPermitsTiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // the component XTILEDATA of XSAVE
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

}  // namespace

bool HasMatrixUnits() {
#if defined(__x86_64__)
  static const bool has = CpuHasAmxBf16() && __builtin_cpu_supports("avx512f") != 0 &&
                          __builtin_cpu_supports("avx512bw") != 0 &&
                          __builtin_cpu_supports("avx512vl") != 0 && SystemPermitsTiles();
  return has;
#else
  return false;
#endif
}

bool UsesMatrixUnits() {
  return allowed_units.load(std::memory_order_relaxed) && HasMatrixUnits() &&
         VectorInstructions().starts_with("AVX3");
}

void AllowMatrixUnits(bool allowed) { allowed_units.store(allowed, std::memory_order_relaxed); }

}  // namespace tandem
