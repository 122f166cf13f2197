#include "kernels/amx/matmul_amx.h"

#if defined(__x86_64__)
#include "kernels/amx/matmul_amx_inl.h"
#include "kernels/amx/tiles.h"
#else
#include <cassert>
#endif

namespace tandem {

void MatMulAmx(std::span<const MatMulArgs> products, ThreadPool& pool) {
#if defined(__x86_64__)
  amx::MatMul<amx::Tiles>(products, pool);
#else
  assert(products.empty() && "UsesMatrixUnits() is false here");
  static_cast<void>(pool);
#endif
}

}  // namespace tandem
