// How much room a worker pod has, and which pod takes the next request.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_POD_ROOM_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_POD_ROOM_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace tandem {

// As far as one router can know: its own requests, and what the pod last said of all routers'.
struct PodRoom {
  bool takes = false;           // new requests, at all
  bool idle = false;            // nothing of this router runs there
  uint32_t num_free_slots = 0;  // of this router at the pod
  uint32_t num_slots = 0;       // of the pod, and how many of them are open, of all routers
  uint32_t num_open_slots = 0;
  uint32_t page_tokens = 0;  // 0: pages do not limit
  int64_t num_pages = 0;
  int64_t num_free_pages = 0;  // beyond what running requests still lack

  int64_t PagesOf(uint32_t rows) const {
    return page_tokens == 0 ? 0 : (int64_t{rows} + page_tokens - 1) / page_tokens;
  }
  // A request that has so many tokens can get a slot now. Alone it always fits.
  bool Fits(uint32_t tokens) const {
    return takes && num_free_slots > 0 &&
           (page_tokens == 0 || idle || PagesOf(tokens + 1) + 1 <= num_free_pages);
  }
  // What would be left of the scarcer of slots and pages, 1: all. Other routers count here and not
  // above: what is known of them is old, so it may rank pods and not keep a request waiting.
  double ShareLeft(uint32_t tokens) const;
};

// The pod with the most room after it took a request of so many tokens: the one of which the
// largest share of the scarcer of slots and KV pages stays free. Pods that are equal take turns:
// the first from `turn` on, counted around. None: nobody has room.
std::optional<size_t> PlaceRequest(std::span<const PodRoom> pods, uint32_t tokens, uint64_t turn);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_POD_ROOM_H_
