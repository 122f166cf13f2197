// The matrix units of an x86 CPU: Intel AMX with BF16 (Intel SDM, volume 1, chapter 18).
#ifndef TANDEM_KERNELS_AMX_MATRIX_UNITS_H_
#define TANDEM_KERNELS_AMX_MATRIX_UNITS_H_

namespace tandem {

// Whether the CPU has AMX-BF16 and AVX-512, and the system lets this process use AMX's registers.
// The first call asks the system.
bool HasMatrixUnits();

// Whether the products with BF16 weights run on the matrix units. They do after
// AllowMatrixUnits(true) if HasMatrixUnits() and dispatch chose AVX-512.
bool UsesMatrixUnits();

// Allows the matrix units, or forbids them, which is the default. The bits of every product change,
// so a process calls this before its first product.
void AllowMatrixUnits(bool allowed);

}  // namespace tandem

#endif  // TANDEM_KERNELS_AMX_MATRIX_UNITS_H_
