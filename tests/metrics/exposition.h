// Reads Prometheus' text format, for tests.
#ifndef TANDEM_TESTS_METRICS_EXPOSITION_H_
#define TANDEM_TESTS_METRICS_EXPOSITION_H_

#include <map>
#include <string>

namespace tandem::testing {

// By name and labels, as they are written with the labels in order:
// `tandem_slots{model="toy",state="free"}`. Throws std::runtime_error for a line that is no series,
// and for one that comes twice.
using Exposition = std::map<std::string, double>;
Exposition ReadExposition(const std::string& text);

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_METRICS_EXPOSITION_H_
