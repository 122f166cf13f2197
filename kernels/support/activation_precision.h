// Whether the CPU multiplies BF16 weights with exact activations or with rounded ones.
#ifndef TANDEM_KERNELS_SUPPORT_ACTIVATION_PRECISION_H_
#define TANDEM_KERNELS_SUPPORT_ACTIVATION_PRECISION_H_

namespace tandem {

// Whether the CPU multiplies pairs of BF16 numbers (AVX512-BF16) and dispatch chose AVX-512.
bool HasBf16Products();

// Whether activations are rounded to BF16, to nearest even, before they are multiplied with BF16
// weights. They are after RoundActivations(true) if HasBf16Products(). Everything else stays F32:
// sums, weights of other types, attention, norms and the residual stream.
bool RoundsActivations();

// Asks for rounded activations, or for exact ones, which are the default. The bits of every product
// change, so a process calls this before its first product.
void RoundActivations(bool wanted);

}  // namespace tandem

#endif  // TANDEM_KERNELS_SUPPORT_ACTIVATION_PRECISION_H_
