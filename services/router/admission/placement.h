// What admission sees of the worker pods, and which pod takes the next request.
#ifndef TANDEM_SERVICES_ROUTER_ADMISSION_PLACEMENT_H_
#define TANDEM_SERVICES_ROUTER_ADMISSION_PLACEMENT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "services/router/engine/engine_command.h"
#include "services/router/engine/pod_room.h"
#include "services/router/engine/sequence.h"

namespace tandem {

// One pod, as of its last event.
struct PodView {
  PodId id = 0;
  PodRoom room;
  // Whether the pod may run sequences: its verifier is ready, and it has its drafter if that is
  // required.
  bool serves = false;
  // Whether the pod may also get new ones: it serves, and does not go away while another pod stays.
  bool open = false;
  bool draining = false;    // whether its verifier was told to stop
  std::string numerics_id;  // numerics of its verifier, when it last attached
  double heard_at = 0;      // when its verifier last answered anything
  uint32_t num_slots = 0;   // slots of this router
};

// All pods of a router.
struct PodsView {
  std::span<const PodView> pods;
  bool serves = false;    // whether any verifier serves
  double down_since = 0;  // since when none does

  // Rows that one sequence can hold at the pod with the largest KV cache. 0: no cache is limited.
  uint64_t LargestCapacity() const;
};

// Returns true if the next tokens of the sequence are the very same at this pod: the sequence has
// no output yet, or its newest token was made with the pod's numerics.
bool KeepsNumerics(const PodView& pod, const Sequence& sequence);

// Returns true if the pod is the first choice for the sequence, whatever room it has: it is open,
// its KV cache could hold the whole request, and it keeps the numerics. `largest_capacity`:
// PodsView::LargestCapacity.
bool Suits(const PodView& pod, const Sequence& sequence, uint64_t largest_capacity);

// Returns true if the pod may run the sequence, whatever room it has. The pod that had the sequence
// last always may while it serves. This is the second choice if that pod goes away, or came back
// with other numerics: the sequence goes there only while no pod suits it.
bool MayRun(const PodView& pod, const Sequence& sequence, uint64_t largest_capacity);

// Returns true if the pod was heard after a verifier was last lost with the sequence in its batch.
// A pod that died too, and was not noticed yet, would count against the request.
bool WasHeardSince(const PodView& pod, const Sequence& sequence);

// Returns the pod with the most room after it took a sequence with this number of tokens: the pod
// of which the largest share of the scarcer of slots and KV pages stays free. Pods that are equal
// take turns: the first from `turn` on, counted around. `choices`: the pods that may take it, in
// order. None: no such pod has room.
std::optional<size_t> PlaceRequest(std::span<const PodView> pods, std::span<const size_t> choices,
                                   uint32_t tokens, uint64_t turn);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ADMISSION_PLACEMENT_H_
