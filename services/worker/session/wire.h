// Conversions and checks of the worker protocol that both workers share.
#ifndef TANDEM_SERVICES_WORKER_SESSION_WIRE_H_
#define TANDEM_SERVICES_WORKER_SESSION_WIRE_H_

#include <google/protobuf/repeated_field.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "common/ring/ring_layout.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

inline RingRef ToRingRef(const v1::RingReference& ring) {
  return {.ring_epoch = ring.ring_epoch(), .entry = ring.entry(), .sequence = ring.sequence()};
}

inline std::span<const int32_t> ToSpan(const google::protobuf::RepeatedField<int32_t>& field) {
  return {field.data(), static_cast<size_t>(field.size())};
}

// INVALID_ARGUMENT: the message names the first id that is not in [0, vocabulary_size).
absl::Status CheckTokenIds(const char* field, std::span<const int32_t> token_ids,
                           size_t vocabulary_size);

// Checks the first command of a session. FAILED_PRECONDITION: another protocol version.
// INVALID_ARGUMENT: sizes out of range.
absl::Status CheckAttach(const v1::Attach& attach);

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_SESSION_WIRE_H_
