// The names of the log-prob ring's transports in logs and metrics.
#ifndef TANDEM_COMMON_RPC_RING_TRANSPORT_H_
#define TANDEM_COMMON_RPC_RING_TRANSPORT_H_

#include <string>

#include "tandem/v1/worker.pb.h"

namespace tandem {

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
