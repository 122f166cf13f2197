// The noise of `reproducible` mode: one uniform for each (seed, position, token), the same in
// drafter and verifier.
#ifndef TANDEM_KERNELS_SAMPLING_RANDOM_COUPLED_NOISE_H_
#define TANDEM_KERNELS_SAMPLING_RANDOM_COUPLED_NOISE_H_

#include <cstdint>
#include <span>

#include "kernels/sampling/random/philox.h"

namespace tandem {

// Returns a uniform number on [0, 1) with 53 bits. Two tokens share a Philox block with the counter
// (token_id / 2, purpose, position), and each takes two words. The drafter and the sibling of the
// key are left out, because every proposer must see the noise that the target sees.
double CoupledUniform(const DrawKey& key, int32_t token_id);

// Returns argmin_x(E(x) / p(x)) over p(x) > 0, with E(x) = -log(1 - CoupledUniform(x)) and
// p = exp(log_probs), in double. The lowest id wins among equals. Returns -1 if every p is 0.
//   log_probs  [V]  f32, <= 0 or -infinity
// The code is vectorized and evaluates only tokens that may win: E(x) >= u(x), since log(1-u) <=
// -u, and u is cut to its upper 24 bits, so u(x) >= best * p(x) rules a token out without changing
// the result.
int32_t CoupledArgmin(std::span<const float> log_probs, const DrawKey& key);

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_RANDOM_COUPLED_NOISE_H_
