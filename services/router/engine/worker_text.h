// What a worker says of a failure, on its way into the log. Nobody else is told: it may name files,
// memory and sockets of the machine. Clients and the live page learn that the worker failed.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_WORKER_TEXT_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_WORKER_TEXT_H_

#include <cstddef>
#include <string>

#include "common/peer_text.h"

namespace tandem {

inline constexpr size_t kMaxWorkerTextBytes = 512;

// As much of it as a line can bear: a worker may say as much as a message holds.
inline std::string WorkerText(const std::string& text) {
  return Shortened(text, kMaxWorkerTextBytes);
}

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_WORKER_TEXT_H_
