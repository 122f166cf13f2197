// Reads Prometheus' text format, for tests.
#ifndef TANDEM_TESTS_METRICS_EXPOSITION_H_
#define TANDEM_TESTS_METRICS_EXPOSITION_H_

#include <map>
#include <string>

namespace tandem::testing {

// The series by name and labels, in the form in which they are written, with the labels in order:
// `tandem_slots{model="toy",state="free"}`. Reading throws std::runtime_error for a line that is
// not a series, and for a series that occurs twice.
using Exposition = std::map<std::string, double>;
Exposition ReadExposition(const std::string& text);

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_METRICS_EXPOSITION_H_
