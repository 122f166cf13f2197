// What this machine's CPU is to the kernels.
#ifndef TANDEM_KERNELS_CPU_H_
#define TANDEM_KERNELS_CPU_H_

#include <string>

namespace tandem {

// Instruction set that run-time dispatch chose, e.g. "AVX2", "AVX3" (AVX-512), "NEON".
std::string InstructionSet();

// Two workers with equal ids give a row the same bits: backend, instruction set and build.
std::string NumericsId();

// Threads to use when nobody says: the CPUs this process may run on.
int DefaultThreads();

}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_H_
