// The log-prob ring's transports, and their names in logs and metrics.
#ifndef TANDEM_COMMON_RPC_RING_TRANSPORT_H_
#define TANDEM_COMMON_RPC_RING_TRANSPORT_H_

#include <string>

#include "tandem/v1/worker.pb.h"

namespace tandem {

// All transports, the fastest first.
inline constexpr v1::RingTransport kRingTransports[] = {
    v1::RING_TRANSPORT_CUDA_IPC, v1::RING_TRANSPORT_SHM, v1::RING_TRANSPORT_INLINE};

// Empty if the transport is unspecified.
inline std::string RingTransportName(v1::RingTransport transport) {
  switch (transport) {
    case v1::RING_TRANSPORT_SHM:
      return "shm";
    case v1::RING_TRANSPORT_INLINE:
      return "inline";
    case v1::RING_TRANSPORT_CUDA_IPC:
      return "cuda_ipc";
    default:
      return "";
  }
}

}  // namespace tandem

#endif  // TANDEM_COMMON_RPC_RING_TRANSPORT_H_
