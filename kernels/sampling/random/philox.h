// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011).
#ifndef TANDEM_KERNELS_SAMPLING_RANDOM_PHILOX_H_
#define TANDEM_KERNELS_SAMPLING_RANDOM_PHILOX_H_

#include <array>
#include <cstdint>

namespace tandem {

// Constants of Philox: the two multipliers of a round, and the increments of the key after each
// round.
inline constexpr int kPhiloxRounds = 10;
inline constexpr std::array<uint32_t, 2> kPhiloxMultipliers = {0xD2511F53, 0xCD9E8D57};
inline constexpr std::array<uint32_t, 2> kPhiloxWeyl = {0x9E3779B9, 0xBB67AE85};

// The block function. Its test uses the known-answer vectors of the authors' Random123.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// The purpose of a draw. Draws of different purposes at one position are independent.
enum class DrawPurpose : uint8_t {
  kPropose = 0,   // the drafter's token
  kAccept = 1,    // u of the acceptance test
  kResample = 2,  // the recovered token, from the residual
  kBonus = 3,     // a token from the target itself: bonus, or plain decoding
  kCoupled = 4,   // Gumbel noise of `reproducible` mode, shared by draft and target
  kAudit = 5,     // v of the audit's transform; no token depends on it
};

// Names a draw. Nothing else decides the drawn value, so batch, round and process do not matter.
struct DrawKey {
  uint64_t seed = 0;
  uint64_t position = 0;  // index in the sequence (prompt and output) of the token that is drawn
  uint8_t drafter = 0;
  uint8_t sibling = 0;  // number of the token among its siblings in a tree, which share a position
};

// Returns a uniform number on [0, 1) with 53 bits. It is never 1.
double Uniform(const DrawKey& key, DrawPurpose purpose);

// The key of a token that the target draws itself. Which drafter proposed something at this
// position makes no difference.
constexpr DrawKey TargetKey(const DrawKey& key) {
  return {.seed = key.seed, .position = key.position};
}
// The number of that draw.
inline double TargetUniform(const DrawKey& key) {
  return Uniform(TargetKey(key), DrawPurpose::kBonus);
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_RANDOM_PHILOX_H_
