// Rings in device memory that a drafter may still have open. It is undefined behavior if the
// exporter frees memory that another process has open.
#ifndef TANDEM_COMMON_RING_RETIRED_RINGS_H_
#define TANDEM_COMMON_RING_RETIRED_RINGS_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "common/ring/log_prob_ring.h"
#include "common/ring/unique_fd.h"

namespace tandem {

// Used by one thread.
class RetiredRings {
 public:
  RetiredRings() = default;
  RetiredRings(const RetiredRings&) = delete;
  RetiredRings& operator=(const RetiredRings&) = delete;
  // Memory that a drafter may still have open is not freed before the process ends.
  ~RetiredRings();

  // Largest number of rings that wait here: one for each draft model of a router that attaches
  // anew, and one more. Each is as large as a ring that is in use.
  static constexpr size_t kMaxWaiting = 5;

  // `peers` are pidfds of the processes that the ring was handed to. A peer without a descriptor
  // never counts as dead. The ring is freed at once if no peer can have it open.
  void Add(std::unique_ptr<LogProbRing> ring, std::vector<UniqueFd> peers);
  // Frees the rings that no drafter has open: either no drafter opened the ring and none will, or
  // the drafter has closed it or died. Returns the number of rings that are left. Cheap if there
  // are none.
  size_t Sweep();

 private:
  struct Retired {
    std::unique_ptr<LogProbRing> ring;
    std::vector<UniqueFd> peers;
  };

  std::vector<Retired> rings_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_RING_RETIRED_RINGS_H_
