#include "tests/kernels/sampling/distribution/goodness_of_fit.h"

#include <algorithm>
#include <boost/math/special_functions/gamma.hpp>
#include <cmath>
#include <numeric>
#include <vector>

namespace tandem::testing {
namespace {

struct Cell {
  double expected = 0;
  double observed = 0;
};

}  // namespace

double GTestPValue(std::span<const double> probabilities, std::span<const int64_t> observed) {
  constexpr double kFewest = 5;
  const auto draws =
      static_cast<double>(std::accumulate(observed.begin(), observed.end(), int64_t{0}));
  Cell pool;
  std::vector<Cell> cells;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    if (probabilities[i] == 0 && observed[i] > 0) return 0;
    const Cell cell{draws * probabilities[i], static_cast<double>(observed[i])};
    if (cell.expected >= kFewest) {
      cells.push_back(cell);
    } else {
      pool.expected += cell.expected;
      pool.observed += cell.observed;
    }
  }
  if (pool.expected >= kFewest || cells.empty()) {
    cells.push_back(pool);
  } else {
    Cell& smallest =
        *std::min_element(cells.begin(), cells.end(),
                          [](const Cell& a, const Cell& b) { return a.expected < b.expected; });
    smallest.expected += pool.expected;
    smallest.observed += pool.observed;
  }
  if (cells.size() == 1) return 1;  // only one outcome was possible

  double g = 0;
  for (const Cell& cell : cells) {
    if (cell.observed > 0) g += 2 * cell.observed * std::log(cell.observed / cell.expected);
  }
  const double degrees_of_freedom = static_cast<double>(cells.size()) - 1;
  return boost::math::gamma_q(degrees_of_freedom / 2, std::max(0.0, g) / 2);
}

}  // namespace tandem::testing
