// Tables for a terminal.
#ifndef TANDEM_SERVICES_CLI_TERMINAL_TABLE_H_
#define TANDEM_SERVICES_CLI_TERMINAL_TABLE_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tandem::cli {

// One row or header, each cell flush right in its column. Widths count characters, not bytes: "×"
// and "α" are two bytes each. A cell that is too wide keeps a space before it. One width a cell.
std::string TableLine(const std::vector<std::string>& cells, std::span<const size_t> widths);

// With so many digits behind the point.
std::string Number(double value, int digits);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_TERMINAL_TABLE_H_
