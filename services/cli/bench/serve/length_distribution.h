// Lengths of prompts and outputs, as a person writes them down.
#ifndef TANDEM_SERVICES_CLI_BENCH_SERVE_LENGTH_DISTRIBUTION_H_
#define TANDEM_SERVICES_CLI_BENCH_SERVE_LENGTH_DISTRIBUTION_H_

#include <random>
#include <string>

#include "absl/status/statusor.h"

namespace tandem::cli {

class LengthDistribution {
 public:
  // Always `length`, which is at least 1.
  static LengthDistribution Fixed(int length);

  // In tokens:
  //   fixed:N, or N      always N
  //   uniform:A-B        A to B, each as likely
  //   lognormal:M,S      e to the power of Normal(ln M, S²), rounded, never under 1: median M; S of
  //                      0.5 to 1 looks like what people ask
  // INVALID_ARGUMENT says what was given and what is wanted.
  static absl::StatusOr<LengthDistribution> Parse(const std::string& text);

  // Between 1 and `limit`: what is drawn beyond is cut to it.
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
