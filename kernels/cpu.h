// Facts about this machine's CPU that the kernels depend on.
#ifndef TANDEM_KERNELS_CPU_H_
#define TANDEM_KERNELS_CPU_H_

#include <string>

namespace tandem {

// The vector instructions that run-time dispatch chose, e.g. "AVX2", "AVX3" (AVX-512), "NEON".
std::string VectorInstructions();

// The vector instructions, with "+BF16" if activations are rounded
// (kernels/support/activation_precision.h), or with "+AMX" if the matrix units are used
// (kernels/amx/matrix_units.h).
std::string InstructionSet();

// Names backend, instruction set and build. Two workers with equal ids give a row the same bits.
std::string NumericsId();

// Default number of threads: the number of CPUs that this process may run on.
int DefaultThreads();

}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_H_
