// A part of a whole that may be nothing.
#ifndef TANDEM_SERVICES_CLI_BENCH_SHARE_H_
#define TANDEM_SERVICES_CLI_BENCH_SHARE_H_

namespace tandem::cli {

// part / whole; 0 where the whole is not above 0.
inline double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_SHARE_H_
