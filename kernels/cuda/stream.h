// The queue that device work is put on, for headers that must not need CUDA's own.
#ifndef TANDEM_KERNELS_CUDA_STREAM_H_
#define TANDEM_KERNELS_CUDA_STREAM_H_

struct CUstream_st;

namespace tandem {

// What CUDA calls a cudaStream_t.
using CudaStream = CUstream_st*;

}  // namespace tandem

#endif  // TANDEM_KERNELS_CUDA_STREAM_H_
