#include "kernels/sampling/random/philox.h"

namespace tandem {
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t product0 = uint64_t{kPhiloxMultipliers[0]} * counter[0];
    const uint64_t product1 = uint64_t{kPhiloxMultipliers[1]} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kPhiloxWeyl[0];
    key[1] += kPhiloxWeyl[1];
  }
  return counter;
}

double Uniform(const DrawKey& key, DrawPurpose purpose) {
  const uint32_t kind = static_cast<uint32_t>(purpose) | static_cast<uint32_t>(key.drafter) << 8 |
                        static_cast<uint32_t>(key.sibling) << 16;
  const std::array<uint32_t, 4> words = Philox4x32(
      {0, kind, static_cast<uint32_t>(key.position), static_cast<uint32_t>(key.position >> 32)},
      {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
  return static_cast<double>((uint64_t{words[0]} << 32 | words[1]) >> 11) * 0x1p-53;
}

}  // namespace tandem
