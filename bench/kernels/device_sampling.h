// Times the sampling kernels of a GPU.
#ifndef TANDEM_BENCH_KERNELS_DEVICE_SAMPLING_H_
#define TANDEM_BENCH_KERNELS_DEVICE_SAMPLING_H_

#include <cstddef>
#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"

namespace tandem::bench {

// Returns {"vocabulary_size": V, "rows": N, "seconds": {kernel and mode: seconds of N rows}}. The
// logits are normal with a deviation of 3, so that top-p keeps a few hundred tokens.
absl::StatusOr<nlohmann::json> MeasureSampling(size_t vocabulary_size, size_t rows, size_t repeats);

}  // namespace tandem::bench

#endif  // TANDEM_BENCH_KERNELS_DEVICE_SAMPLING_H_
