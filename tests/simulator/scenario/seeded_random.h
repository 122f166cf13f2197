// The simulator's only source of chance: SplitMix64 (Steele, Lea, Flood 2014). It gives the same
// numbers on every machine.
#ifndef TANDEM_TESTS_SIMULATOR_SCENARIO_SEEDED_RANDOM_H_
#define TANDEM_TESTS_SIMULATOR_SCENARIO_SEEDED_RANDOM_H_

#include <cstdint>
#include <vector>

namespace tandem::simulator {

class SeededRandom {
 public:
  explicit SeededRandom(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  // Returns a number in [low, high].
  int Between(int low, int high) {
    return low + static_cast<int>(Next() % static_cast<uint64_t>(high - low + 1));
  }
  double Real(double low, double high) {
    return low + (high - low) * static_cast<double>(Next() >> 11) * 0x1p-53;
  }
  bool Chance(double probability) { return Real(0, 1) < probability; }
  template <typename T>
  const T& Pick(const std::vector<T>& values) {
    return values[Next() % values.size()];
  }
  // Returns an independent stream, so that draws of one part do not change the draws of another.
  SeededRandom Fork() { return SeededRandom(Next()); }

 private:
  uint64_t state_;
};

}  // namespace tandem::simulator

#endif  // TANDEM_TESTS_SIMULATOR_SCENARIO_SEEDED_RANDOM_H_
