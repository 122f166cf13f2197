// How fast this machine reads memory. Decoding one token reads all weights once, so this speed
// limits plain decoding.
#ifndef TANDEM_SERVICES_CLI_DOCTOR_MEMORY_SPEED_H_
#define TANDEM_SERVICES_CLI_DOCTOR_MEMORY_SPEED_H_

#include <cstddef>

namespace tandem::cli {

// Reads buffers that are larger than the caches, each thread its own, for about `seconds`. Returns
// the bytes per second of all threads together, in the best of the passes. 0: there is no memory
// for the buffers.
double MeasureReadBytesPerSecond(int num_threads, double seconds, size_t bytes_per_thread);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_DOCTOR_MEMORY_SPEED_H_
