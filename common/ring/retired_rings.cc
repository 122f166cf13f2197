#include "common/ring/retired_rings.h"

#include <poll.h>

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

// A pidfd becomes readable when its process has ended (pidfd_open(2)). An empty descriptor never
// does.
bool IsGone(const UniqueFd& peer) {
  pollfd fd = {.fd = peer.get(), .events = POLLIN, .revents = 0};
  return poll(&fd, 1, 0) == 1;
}

}  // namespace

RetiredRings::~RetiredRings() {
  Sweep();
  for (Retired& retired : rings_) static_cast<void>(retired.ring.release());
}

void RetiredRings::Add(std::unique_ptr<LogProbRing> ring, std::vector<UniqueFd> peers) {
  rings_.push_back({std::move(ring), std::move(peers)});
  Sweep();
}

size_t RetiredRings::Sweep() {
  std::erase_if(rings_, [](const Retired& retired) {
    return retired.ring->Withdraw() ||
           std::all_of(retired.peers.begin(), retired.peers.end(), IsGone);
  });
  return rings_.size();
}

}  // namespace tandem
