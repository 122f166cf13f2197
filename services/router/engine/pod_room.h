// How much room a worker pod has for one more sequence.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_POD_ROOM_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_POD_ROOM_H_

#include <cstddef>
#include <cstdint>

namespace tandem {

// As far as one router can know: its own requests, and what the pod last said of all routers.
struct PodRoom {
  bool takes = false;           // whether the pod takes sequences at all
  double takes_at = 0;          // when it takes them again, after one found no page or no slot
  bool idle = false;            // whether no client's sequence of this router runs there
  bool empty = false;           // whether nothing of this router runs there, replays included
  uint32_t num_free_slots = 0;  // slots of this router that no client's sequence has
  uint32_t num_slots = 0;       // slots of the pod
  uint32_t num_open_slots = 0;  // slots of the pod that are open, of all routers
  uint32_t page_tokens = 0;     // rows of a page; 0: pages do not limit
  int64_t num_pages = 0;
  int64_t num_free_pages = 0;  // pages beyond what running requests still lack

  // Rows that one sequence can hold when it has the pod for itself. 0: pages do not limit, or no
  // verifier attached yet.
  uint64_t capacity() const { return static_cast<uint64_t>(num_pages) * page_tokens; }
  int64_t PagesOf(uint32_t rows) const {
    return page_tokens == 0 ? 0 : (int64_t{rows} + page_tokens - 1) / page_tokens;
  }
  // Returns true if a sequence with this number of tokens can get a slot now. Alone it always fits.
  bool Fits(uint32_t tokens) const {
    return takes && num_free_slots > 0 &&
           (page_tokens == 0 || idle || PagesOf(tokens + 1) + 1 <= num_free_pages);
  }
  // Returns the share that would be left of the scarcer of slots and pages; 1: all. Other routers
  // count here and not above: what is known of them is old, so it may rank pods, and must not keep
  // a request waiting.
  double ShareLeft(uint32_t tokens) const;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_POD_ROOM_H_
