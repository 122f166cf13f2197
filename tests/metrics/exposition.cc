#include "tests/metrics/exposition.h"

#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>

namespace tandem::testing {

Exposition ReadExposition(const std::string& text) {
  static const std::regex kSeries(R"re(([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(.*)\})? (\S+))re");
  static const std::regex kLabel(R"re(([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)",?)re");
  Exposition series;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::smatch match;
    if (!std::regex_match(line, match, kSeries)) throw std::runtime_error("no series: " + line);
    const std::string labels = match[3];
    std::set<std::string> sorted;
    for (std::sregex_iterator it(labels.begin(), labels.end(), kLabel), end; it != end; ++it) {
      sorted.insert((*it)[1].str() + "=\"" + (*it)[2].str() + "\"");
    }
    std::string name = match[1];
    if (!sorted.empty()) {
      name += '{';
      for (const std::string& label : sorted) name += label + ",";
      name.back() = '}';
    }
    if (!series.emplace(name, std::stod(match[4])).second) {
      throw std::runtime_error("twice: " + line);
    }
  }
  return series;
}

}  // namespace tandem::testing
