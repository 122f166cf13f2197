// The lengths of prompts and outputs in a load test, which the command line gives as text.
#ifndef TANDEM_SERVICES_CLI_BENCH_SERVE_LENGTH_DISTRIBUTION_H_
#define TANDEM_SERVICES_CLI_BENCH_SERVE_LENGTH_DISTRIBUTION_H_

#include <random>
#include <string>

#include "absl/status/statusor.h"

namespace tandem::cli {

class LengthDistribution {
 public:
  // Always gives `length`, which is at least 1.
  static LengthDistribution Fixed(int length);

  // In tokens:
  //   fixed:N, or N      always N
  //   uniform:A-B        A to B, all with equal probability
  //   lognormal:M,S      e to the power of Normal(ln M, S²), rounded, at least 1. The median is M.
  //                      S between 0.5 and 1 resembles real requests
  // INVALID_ARGUMENT names the given text and the wanted form.
  static absl::StatusOr<LengthDistribution> Parse(const std::string& text);

  // Draws a length between 1 and `limit`. A longer one is cut to `limit`.
  int Draw(std::mt19937_64& random, int limit) const;

 private:
  enum class Kind { kUniform, kLognormal };

  LengthDistribution(Kind kind, double a, double b) : kind_(kind), a_(a), b_(b) {}

  Kind kind_;
  double a_;  // lowest, or median
  double b_;  // highest, or sigma
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_SERVE_LENGTH_DISTRIBUTION_H_
