// How a product of many rows is cut into thread blocks. The choice has no effect on bits.
#ifndef TANDEM_KERNELS_MATMUL_BF16_TILES_H_
#define TANDEM_KERNELS_MATMUL_BF16_TILES_H_

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/device/device.h"
#include "kernels/device/stream.h"
#include "kernels/matmul.h"

namespace tandem::bf16_product {

// The features x rows of a thread block. Large blocks read less for each product that they compute,
// and small ones leave fewer multiprocessors without work.
enum class Tile { k64x64, k128x64, k128x128 };
inline constexpr Tile kTiles[] = {Tile::k64x64, Tile::k128x64, Tile::k128x128};

// Returns the tile with which a product ends first, among those that have room.
Tile ChooseTile(size_t features, size_t rows, const BlockLimits& limits);

// Returns the bytes of dynamic shared memory that a thread block with such a tile takes.
size_t SharedBytes(Tile tile);

// Computes a product in tiles of this kind, whatever the number of rows (for tests and
// checks). PRECOND: what MatMulBf16 checks, rows > 0 and out_features > 0. x of several parts has
// tiles of one kind only.
absl::Status MatMulInTiles(Tile tile, const MatMulArgs& args, CudaStream stream);

}  // namespace tandem::bf16_product

#endif  // TANDEM_KERNELS_MATMUL_BF16_TILES_H_
