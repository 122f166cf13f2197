// The queue that device work is put on, for headers that must not include CUDA's own.
#ifndef TANDEM_KERNELS_DEVICE_STREAM_H_
#define TANDEM_KERNELS_DEVICE_STREAM_H_

struct CUstream_st;

namespace tandem {

// CUDA's name for it is cudaStream_t.
using CudaStream = CUstream_st*;

}  // namespace tandem

#endif  // TANDEM_KERNELS_DEVICE_STREAM_H_
