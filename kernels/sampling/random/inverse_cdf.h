// Inverse-CDF draws over a row whose weights are made on the fly, block by block.
#ifndef TANDEM_KERNELS_SAMPLING_RANDOM_INVERSE_CDF_H_
#define TANDEM_KERNELS_SAMPLING_RANDOM_INVERSE_CDF_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem {

// Draws index x with probability weight(x) / total, in index order. Never returns an index of
// weight 0, and returns -1 if all weights are 0. make_weights(begin, count, double* weights) writes
// count weights >= 0 and returns their sum. It is called once for every block, and once more for
// the block that holds the draw. PRECOND: u is in [0, 1).
template <class MakeWeights>
int32_t DrawByInverseCdf(size_t size, double u, const MakeWeights& make_weights) {
  constexpr size_t kBlock = 256;
  double weights[kBlock];
  thread_local std::vector<double> sums;
  sums.clear();
  double total = 0;
  for (size_t begin = 0; begin < size; begin += kBlock) {
    sums.push_back(make_weights(begin, std::min(kBlock, size - begin), weights));
    total += sums.back();
  }
  if (!(total > 0)) return -1;

  // Rounding may leave the sum at the last block, or at the last token of a block, below `wanted`.
  // The last one with a weight is taken then.
  const double wanted = u * total;
  double below = 0;
  double below_block = 0;
  size_t block = 0;
  for (size_t b = 0; b < sums.size(); ++b) {
    if (sums[b] == 0) continue;
    block = b;
    below_block = below;
    below += sums[b];
    if (below > wanted) break;
  }
  const size_t begin = block * kBlock;
  const size_t count = std::min(kBlock, size - begin);
  make_weights(begin, count, weights);
  double reached = below_block;
  size_t drawn = 0;
  for (size_t i = 0; i < count; ++i) {
    if (weights[i] == 0) continue;
    drawn = i;
    reached += weights[i];
    if (reached > wanted) break;
  }
  return static_cast<int32_t>(begin + drawn);
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_RANDOM_INVERSE_CDF_H_
