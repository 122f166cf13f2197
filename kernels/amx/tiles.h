// The tile registers of AMX, for one thread, and the five instructions that the product uses.
//
// A register holds 16 rows of 64 bytes. AMX's data types are fixed by the instruction: Dot reads
// two registers of BF16 and adds to a register of F32. The instructions are written as assembly,
// because the compilers' intrinsics do not say that they read and write memory.
#ifndef TANDEM_KERNELS_AMX_TILES_H_
#define TANDEM_KERNELS_AMX_TILES_H_

#include <cstddef>
#include <cstdint>

namespace tandem::amx {

inline constexpr size_t kTileRows = 16;
inline constexpr size_t kTileRowBytes = 64;
inline constexpr size_t kTileBytes = kTileRows * kTileRowBytes;
inline constexpr size_t kTileDepth = kTileRowBytes / 2;  // BF16 numbers of a row
inline constexpr int kTileRegisters = 8;

#if defined(__x86_64__)
// Configures the registers of this thread for as long as the object lives. Without an owner the
// registers are in their initial state, so that switching threads does not save them.
class Tiles {
 public:
  Tiles() {
    alignas(64) Config config = {};
    config.palette = 1;
    for (int i = 0; i < kTileRegisters; ++i) {
      config.row_bytes[i] = kTileRowBytes;
      config.rows[i] = kTileRows;
    }
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  ~Tiles() { asm volatile("tilerelease" ::: "memory"); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  template <int kTo>
  void Zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTo));
  }

  // Rows lie `stride` bytes apart. They need no alignment.
  template <int kTo>
  void Load(const void* from, size_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTo) : "memory");
  }

  template <int kFrom>
  void Store(void* to, size_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kFrom) : "memory");
  }

  // sum [16, 16] f32 += a [16, 32] bf16 · b [16, 16, 2] bf16, where b holds the k-th pairs of its
  // columns in row k. Products are exact. The 16 products of even k are added up from zero with k
  // ascending, so are those of odd k, and the two sums are added, and then added to `sum`. Every
  // addition rounds to nearest even, and subnormal numbers count as zero (TDPBF16PS).
  template <int kSum, int kA, int kB>
  void Dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
  }

 private:
  struct Config {
    uint8_t palette;
    uint8_t start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  };
};
#endif

}  // namespace tandem::amx

#endif  // TANDEM_KERNELS_AMX_TILES_H_
