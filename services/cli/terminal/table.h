// Tables for a terminal.
#ifndef TANDEM_SERVICES_CLI_TERMINAL_TABLE_H_
#define TANDEM_SERVICES_CLI_TERMINAL_TABLE_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tandem::cli {

// Returns one row or header. Each cell is aligned to the right of its column. Widths count
// characters, not bytes: "×" and "α" have two bytes each. A cell that is too wide keeps a space
// before it. There is one width for each cell.
std::string TableLine(const std::vector<std::string>& cells, std::span<const size_t> widths);

// Returns the number with `digits` digits after the point.
std::string Number(double value, int digits);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_TERMINAL_TABLE_H_
