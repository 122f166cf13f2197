// Shares of a total that may be zero.
#ifndef TANDEM_SERVICES_CLI_BENCH_SHARE_H_
#define TANDEM_SERVICES_CLI_BENCH_SHARE_H_

namespace tandem::cli {

// Returns part / whole, or 0 if `whole` is not positive.
inline double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_SHARE_H_
