// The product with BF16 weights on AMX's matrix units (ADR 0023).
#ifndef TANDEM_KERNELS_AMX_MATMUL_AMX_H_
#define TANDEM_KERNELS_AMX_MATMUL_AMX_H_

#include <span>

#include "kernels/matmul.h"
#include "kernels/thread_pool.h"

namespace tandem {

// Runs products as MatMul does (kernels/matmul.h), with an order of sums of its own.
//
// x is cut into three BF16 parts of 8 significant bits each, which add up to x exactly. A part of
// out[m, n] is a sum over steps of 32 k, with k ascending; a step adds the sum of its even k and
// the sum of its odd k (kernels/amx/tiles.h). out[m, n] is first part + (second part + third part).
// This order does not depend on the number of rows, on the other rows, or on the threads. Rounding
// happens only in the sums, but numbers below 2^-126 in weights, parts and sums count as zero.
// PRECOND: UsesMatrixUnits(), and every dtype is kBF16.
void MatMulAmx(std::span<const MatMulArgs> products, ThreadPool& pool);

}  // namespace tandem

#endif  // TANDEM_KERNELS_AMX_MATMUL_AMX_H_
