// Counts of what a worker has done. Only the one thread that computes changes them.
#ifndef TANDEM_SERVICES_WORKER_WORKER_STATS_H_
#define TANDEM_SERVICES_WORKER_WORKER_STATS_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

#include "tandem/v1/worker.pb.h"

namespace tandem {

// Why the verifier dropped a block of log-probs. This list is complete: the metrics show each
// reason before it first occurs.
enum class RingError : uint8_t {
  kBadRows,             // the rows arrived, but they are no distributions
  kFailedPrecondition,  // there is no ring, or the entry does not hold the block
  kInvalidArgument,     // no entry can hold the block that the router named
  kInternal,            // the device failed, or another error occurred
};
inline constexpr const char* kRingErrorNames[] = {"bad_rows", "failed_precondition",
                                                  "invalid_argument", "internal"};
inline constexpr size_t kNumRingErrors = std::size(kRingErrorNames);

struct WorkerStats {
  uint64_t num_batches = 0;                          // Propose or Verify commands answered
  double compute_seconds = 0;                        // time of these commands, without the ring
  int num_sessions = 0;                              // attached sessions
  std::map<v1::RingTransport, uint64_t> ring_bytes;  // written by the drafter
  // Tokens of the draft model that the drafter guessed, and those of them that the model drew.
  uint64_t num_guessed = 0;
  uint64_t num_guessed_right = 0;
  // Blocks that the verifier dropped, by transport and reason.
  std::map<std::pair<v1::RingTransport, RingError>, uint64_t> ring_errors;
};

inline WorkerStats& operator+=(WorkerStats& sum, const WorkerStats& one) {
  sum.num_batches += one.num_batches;
  sum.compute_seconds += one.compute_seconds;
  sum.num_sessions += one.num_sessions;
  for (const auto& [transport, bytes] : one.ring_bytes) sum.ring_bytes[transport] += bytes;
  sum.num_guessed += one.num_guessed;
  sum.num_guessed_right += one.num_guessed_right;
  for (const auto& [kind, count] : one.ring_errors) sum.ring_errors[kind] += count;
  return sum;
}

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_WORKER_STATS_H_
