// What a worker has done, in plain numbers, as its one computing thread counts them.
#ifndef TANDEM_SERVICES_WORKER_WORKER_STATS_H_
#define TANDEM_SERVICES_WORKER_WORKER_STATS_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

#include "tandem/v1/worker.pb.h"

namespace tandem {

// Why the verifier dropped a block of log-probs. All there are: each is shown before it happens.
enum class RingError : uint8_t {
  kBadRows,             // they came, and are no distributions
  kFailedPrecondition,  // there is no ring, or the entry does not hold that block
  kInvalidArgument,     // no entry can hold what the router named
  kInternal,            // the device failed, or anything else
};
inline constexpr const char* kRingErrorNames[] = {"bad_rows", "failed_precondition",
                                                  "invalid_argument", "internal"};
inline constexpr size_t kNumRingErrors = std::size(kRingErrorNames);

struct WorkerStats {
  uint64_t num_batches = 0;                          // Propose or Verify commands answered
  double compute_seconds = 0;                        // that they took, without the ring
  int num_sessions = 0;                              // attached
  std::map<v1::RingTransport, uint64_t> ring_bytes;  // written by the drafter
  // Blocks that the verifier dropped: by transport and reason.
  std::map<std::pair<v1::RingTransport, RingError>, uint64_t> ring_errors;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_WORKER_STATS_H_
