// Inverse-CDF draws over rows whose weights are made on the fly, block by block.
#ifndef TANDEM_KERNELS_SAMPLING_INVERSE_CDF_H_
#define TANDEM_KERNELS_SAMPLING_INVERSE_CDF_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem {

// Draws index x with probability weight(x) / total, in index order; never one of weight 0. -1 when
// all weights are 0. u in [0, 1). make_weights(begin, count, double* weights) writes count weights
// >= 0 and returns their sum; it is called for every block once, and for the block that holds the
// draw once more.
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

  // Rounding may leave the last block, or the last token of a block, short of `wanted`: the last
  // one of weight stands in.
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

#endif  // TANDEM_KERNELS_SAMPLING_INVERSE_CDF_H_
