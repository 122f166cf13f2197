// Two models without weights. Each token is a function of the hash of all tokens before it.
#ifndef TANDEM_TESTS_SIMULATOR_SCENARIO_TOY_PAIR_H_
#define TANDEM_TESTS_SIMULATOR_SCENARIO_TOY_PAIR_H_

#include <cstdint>

#include "common/token_hash.h"

namespace tandem::simulator {

// The target is deterministic in every mode, because its distribution has only one token. Every
// request therefore has one right output. The drafter agrees with the target at times.
struct ToyPair {
  int32_t vocabulary_size = 32;  // the last id ends the text
  int percent_agreement = 70;
  int percent_end = 3;

  int32_t Target(uint64_t prefix_hash) const {
    const uint64_t z = ExtendTokenHash(prefix_hash, 12345);
    if (static_cast<int>(z % 100) < percent_end) return vocabulary_size - 1;
    return static_cast<int32_t>((z / 100) % static_cast<uint64_t>(vocabulary_size - 1));
  }
  // `draw` is a new random number for each sampled draft, and 0 for other drafts.
  int32_t Draft(uint64_t prefix_hash, uint64_t draw) const {
    const uint64_t z = ExtendTokenHash(prefix_hash ^ draw, 54321);
    const int32_t target = Target(prefix_hash);
    if (static_cast<int>(z % 100) < percent_agreement) return target;
    return static_cast<int32_t>((target + 1 + z / 100 % 3) % vocabulary_size);
  }
  // Returns the target's logprob of a token after a prefix. The number is only a marker by which
  // the checker recognizes both.
  float Logprob(uint64_t prefix_hash, int32_t token_id) const {
    return -static_cast<float>(ExtendTokenHash(prefix_hash, token_id) % 10000) / 1000.0f;
  }
};

}  // namespace tandem::simulator

#endif  // TANDEM_TESTS_SIMULATOR_SCENARIO_TOY_PAIR_H_
