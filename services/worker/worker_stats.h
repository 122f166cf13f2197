// What a worker has done, in plain numbers, as its one computing thread counts them.
#ifndef TANDEM_SERVICES_WORKER_WORKER_STATS_H_
#define TANDEM_SERVICES_WORKER_WORKER_STATS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "tandem/v1/worker.pb.h"

namespace tandem {

// A reason in `ring_errors`: rows came, and are no distributions. Others are names of statuses.
inline constexpr char kBadRingRows[] = "bad_rows";

struct WorkerStats {
  uint64_t num_batches = 0;                          // Propose or Verify commands answered
  double compute_seconds = 0;                        // that they took, without the ring
  int num_sessions = 0;                              // attached
  std::map<v1::RingTransport, uint64_t> ring_bytes;  // written by the drafter
  // Blocks that the verifier dropped: by transport and reason.
  std::map<std::pair<v1::RingTransport, std::string>, uint64_t> ring_errors;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_WORKER_STATS_H_
