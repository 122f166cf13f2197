// The rolling hash by which router and workers agree on the tokens of a slot
// (SlotPoint.prefix_hash).
#ifndef TANDEM_COMMON_TOKEN_HASH_H_
#define TANDEM_COMMON_TOKEN_HASH_H_

#include <cstdint>
#include <span>

namespace tandem {

// The hash of the empty sequence.
inline constexpr uint64_t kEmptyTokenHash = 0x9E3779B97F4A7C15ULL;

// Returns the hash of a sequence followed by `token_id`, from the hash of the sequence.
// SplitMix64's finalizer (Steele, Lea, Flood 2014) is a bijection, so two sequences of one length
// that differ in one token never collide.
inline uint64_t ExtendTokenHash(uint64_t hash, int32_t token_id) {
  uint64_t z = hash + 0x9E3779B97F4A7C15ULL + static_cast<uint32_t>(token_id);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

inline uint64_t HashTokens(std::span<const int32_t> token_ids) {
  uint64_t hash = kEmptyTokenHash;
  for (int32_t id : token_ids) hash = ExtendTokenHash(hash, id);
  return hash;
}

}  // namespace tandem

#endif  // TANDEM_COMMON_TOKEN_HASH_H_
