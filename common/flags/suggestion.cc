#include "common/flags/suggestion.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace tandem {

namespace {

// Words that are longer are not compared.
constexpr size_t kMaxLetters = 64;

size_t Distance(std::string_view a, std::string_view b) {
  // rows[i % 3][j]: the distance between the first i letters of a and the first j letters of b.
  std::vector<std::vector<size_t>> rows(3, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    std::vector<size_t>& row = rows[i % 3];
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        row[j] = i + j;
        continue;
      }
      const std::vector<size_t>& above = rows[(i + 2) % 3];
      row[j] =
          std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], rows[(i + 1) % 3][j - 2] + 1);
      }
    }
  }
  return rows[a.size() % 3][b.size()];
}

}  // namespace

std::string ClosestWord(std::string_view word, const std::vector<std::string>& candidates) {
  std::string closest;
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  if (word.size() > kMaxLetters) return closest;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kMaxLetters) continue;
    const size_t distance = Distance(word, candidate);
    if (distance >= least) continue;
    least = distance;
    closest = candidate;
  }
  return closest;
}

std::string DidYouMean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string closest = ClosestWord(word, candidates);
  return closest.empty() ? "" : absl::StrCat("; did you mean ", closest, "?");
}

}  // namespace tandem
