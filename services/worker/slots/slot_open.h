// A request's sampling parameters as they come from the router.
#ifndef TANDEM_SERVICES_WORKER_SLOTS_SLOT_OPEN_H_
#define TANDEM_SERVICES_WORKER_SLOTS_SLOT_OPEN_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "kernels/sampling/transform/sampling_params.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// Checks that every number is finite and in the range that SamplingParams states, and that every
// token id is in [0, vocabulary_size). A fault of the router must not become a fault of the worker.
// INVALID_ARGUMENT names the field.
absl::StatusOr<SamplingParams> FromSlotOpen(const v1::SlotOpen& open, size_t vocabulary_size);

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_SLOTS_SLOT_OPEN_H_
