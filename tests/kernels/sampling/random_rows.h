// Makes the kinds of logit rows that tests need.
#ifndef TANDEM_TESTS_KERNELS_SAMPLING_RANDOM_ROWS_H_
#define TANDEM_TESTS_KERNELS_SAMPLING_RANDOM_ROWS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

namespace tandem::testing {

struct RowKind {
  std::string name;
  std::function<std::vector<float>(size_t size, std::mt19937_64& random)> make;
};
inline void PrintTo(const RowKind& kind, std::ostream* out) { *out << kind.name; }

inline std::vector<float> NormalRow(size_t size, float spread, std::mt19937_64& random) {
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> row(size);
  for (float& x : row) x = normal(random);
  return row;
}

inline std::vector<RowKind> AllRowKinds() {
  return {
      {"Normal",
       [](size_t size, std::mt19937_64& random) { return NormalRow(size, 2.0f, random); }},
      {"Peaked",
       [](size_t size, std::mt19937_64& random) { return NormalRow(size, 12.0f, random); }},
      {"Ties",
       [](size_t size, std::mt19937_64& random) {
         std::vector<float> row = NormalRow(size, 1.0f, random);
         for (float& x : row) x = std::round(x);
         return row;
       }},
      {"Flat", [](size_t size, std::mt19937_64&) { return std::vector<float>(size, -3.25f); }},
      {"Ascending",
       [](size_t size, std::mt19937_64& random) {
         std::vector<float> row = NormalRow(size, 3.0f, random);
         std::sort(row.begin(), row.end());
         return row;
       }},
      {"Denormal",
       [](size_t size, std::mt19937_64& random) {
         std::vector<float> row = NormalRow(size, 1.0f, random);
         for (float& x : row) x *= 1e-41f;
         return row;
       }},
      {"Huge",
       [](size_t size, std::mt19937_64& random) {
         std::vector<float> row = NormalRow(size, 1.0f, random);
         for (float& x : row) x *= 5e37f;
         return row;
       }},
  };
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_KERNELS_SAMPLING_RANDOM_ROWS_H_
