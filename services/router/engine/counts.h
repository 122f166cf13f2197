// What an engine counts, and how full it is. Prometheus' metrics (RouterMetrics), ServerLoad and
// the live page read these two structs. FleetState adds them up over the worker pods.
//
// A new count is declared here, is raised where it happens, and has its metric in
// common/metrics/catalogue.h and one row in the constructor of CountMetrics.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_COUNTS_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_COUNTS_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "services/router/engine/engine_command.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// Why a request that may be drafted for was decoded plainly in a round.
enum class Fallback : uint8_t {
  kNoDrafter,      // no drafter is attached
  kNothingFound,   // the request uses lookups alone, and they found nothing
  kNotWorthwhile,  // drafts are not expected to pay
  kCatchingUp,     // the drafter lacks rows of the request
  kNoRing,         // no entry of the log-prob ring is free, or there is no ring
  kNoPages,        // a KV cache has too few free pages
  kNoRoom,         // the request is near its last token, or near the end of a context
  kGivenUp,        // the drafter cannot serve the request
  kDraftFailed,    // the drafter refused the request this time, or was lost
  kRingError,      // the block could not be judged
};
inline constexpr size_t kNumFallbacks = 10;
inline constexpr const char* kFallbackNames[kNumFallbacks] = {
    "no_drafter", "nothing_found", "not_worthwhile", "catching_up",  "no_ring",
    "no_pages",   "no_room",       "given_up",       "draft_failed", "ring_error"};

// What became of a session with a worker.
enum class SessionChange : uint8_t {
  kAttached,
  kDisconnected,   // the stream ended: the worker died, or the connection broke
  kHung,           // the worker gave no sign of life, or made no progress
  kTimeout,        // the worker did not attach, or did not draft, in time
  kProtocolError,  // the worker answered what it must not answer
  kIncompatible,
};
inline constexpr size_t kNumSessionChanges = 6;
inline constexpr const char* kSessionChangeNames[kNumSessionChanges] = {
    "attached", "disconnected", "hung", "timeout", "protocol_error", "incompatible"};

// One value, or one group of values, for each value of an enumeration.
template <typename Enum, size_t size, typename Value = uint64_t>
struct PerValue {
  std::array<Value, size> values = {};

  Value& operator[](Enum index) { return values[static_cast<size_t>(index)]; }
  const Value& operator[](Enum index) const { return values[static_cast<size_t>(index)]; }
};
template <typename Value = uint64_t>
using PerWorker = PerValue<Worker, kNumWorkers, Value>;

// Counts since the start of the engine. No count ever falls. Every field is a uint64_t, or is made
// of them.
struct Counts {
  // Requests that ended, with any status, apart from canceled requests and requests that were
  // refused a place. Only admission knows this number: it is 0 in the counts of an engine, and
  // FleetState sets it.
  uint64_t finished = 0;
  // Running requests that gave up their slot, to be computed again. A replay of the audit that
  // gives way to a request is not counted.
  uint64_t preemptions = 0;
  // Sessions that were lost after the worker was ready.
  PerWorker<> losses;
  // Blocks that the verifier could not judge, because of what it found in the log-prob ring.
  uint64_t ring_errors = 0;
  // Tokens of requests whose rows the verifier found in its prefix cache. Rows that the request has
  // had at a verifier before, and replays of the audit, do not count.
  uint64_t cached_prompt_tokens = 0;
  // Tokens, of prompts and of outputs, whose rows the drafter found in its prefix cache.
  uint64_t cached_draft_tokens = 0;
  // Prompt tokens that a worker was sent, but for those that were sent alone, and how many of them
  // the worker found in its prefix cache. Replays of the audit do not count.
  PerWorker<> prefix_lookups;
  PerWorker<> prefix_hits;
  // Rollbacks of one slot, and the rows of draft tokens that they dropped. The drafter is told to
  // roll back; the verifier does so with each verdict that rejects draft tokens.
  PerWorker<> rollbacks;
  PerWorker<> rolled_back_rows;
  // Rounds in which a request that may be drafted for was decoded plainly.
  PerValue<Fallback, kNumFallbacks> fallbacks;
  // Sessions that began (attached) and sessions that ended (all others). A worker that cannot be
  // reached is no change; a worker that is incompatible is one.
  PerWorker<PerValue<SessionChange, kNumSessionChanges>> session_changes;
  // Times that a worker could not have a log-prob ring of a transport. Where both workers offer a
  // transport and cannot share it, the drafter's count grows.
  PerWorker<PerValue<v1::RingTransport, v1::RingTransport_ARRAYSIZE>> ring_refusals;
};

// All counts, in the order of their declaration.
using CountList = std::array<uint64_t, sizeof(Counts) / sizeof(uint64_t)>;
static_assert(std::is_trivially_copyable_v<Counts> &&
                  std::has_unique_object_representations_v<Counts>,
              "Counts has a field that is not made of uint64_t");

// Adds each count of `one` to the same count of `sum`.
inline Counts& operator+=(Counts& sum, const Counts& one) {
  auto sums = std::bit_cast<CountList>(sum);
  const auto more = std::bit_cast<CountList>(one);
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
  return sum = std::bit_cast<Counts>(sums);
}

// How full the engine is at this moment.
struct Gauges {
  int running = 0;  // clients' requests that have a slot
  int queued = 0;   // clients' requests that wait for a slot
  int slots = 0;    // all slots, free or not; 0 until a verifier attached for the first time
  // Pages of a worker's KV cache, and how many of them are free by the router's estimate.
  PerWorker<int> kv_pages;
  PerWorker<int> free_kv_pages;
  int kv_page_tokens = 0;  // rows of a page of the verifier
};

// Adds all but `kv_page_tokens`, which is taken from the last pod that states it.
inline Gauges& operator+=(Gauges& sum, const Gauges& one) {
  sum.running += one.running;
  sum.queued += one.queued;
  sum.slots += one.slots;
  for (size_t worker = 0; worker < kNumWorkers; ++worker) {
    sum.kv_pages.values[worker] += one.kv_pages.values[worker];
    sum.free_kv_pages.values[worker] += one.free_kv_pages.values[worker];
  }
  if (one.kv_page_tokens > 0) sum.kv_page_tokens = one.kv_page_tokens;
  return sum;
}

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_COUNTS_H_
