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
  // Rings that wait here at most; each is as large as the one in use.
  static constexpr size_t kMaxWaiting = 2;

  // `peers`: pidfds of the processes that the ring was handed to. Freed at once when none can have it
  // open.
  void Add(std::unique_ptr<LogProbRing> ring, std::vector<UniqueFd> peers);
  // Frees those whose drafter has detached or died. Returns how many are left.
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
