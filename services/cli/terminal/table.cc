#include "services/cli/terminal/table.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace tandem::cli {

namespace {

std::string Cell(const std::string& text, size_t width) {
  const size_t characters = std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  });
  return std::string(characters < width ? width - characters : 1, ' ') + text;
}

}  // namespace

std::string TableLine(const std::vector<std::string>& cells, std::span<const size_t> widths) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) line += Cell(cells[i], widths[i]);
  return line;
}

std::string Number(double value, int digits) { return absl::StrFormat("%.*f", digits, value); }

}  // namespace tandem::cli
