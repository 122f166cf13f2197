// Rings in a device's memory that a drafter may still have open: memory that is freed by who exported
// it while another process has it open is undefined behaviour.
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
  // What a drafter may still have open is left to the end of the process.
  ~RetiredRings();

  // Rings that wait here at most; each is as large as the one in use.
  static constexpr size_t kMaxWaiting = 2;

  // `peers`: pidfds of the processes that the ring was handed to; one without a descriptor never
  // counts as dead. Freed at once when none can have it open.
  void Add(std::unique_ptr<LogProbRing> ring, std::vector<UniqueFd> peers);
  // Frees those that no drafter has open: none opened it, or will; it has closed it, or died.
  // Returns how many are left. Cheap when there are none.
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
