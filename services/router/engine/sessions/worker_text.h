// The text in which a worker describes a failure, on the way into the log. Only the log has this
// text, because it may name files, memory and sockets of the machine. Clients and the live page
// learn only that the worker failed.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_SESSIONS_WORKER_TEXT_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_SESSIONS_WORKER_TEXT_H_

#include <cstddef>
#include <string>

#include "common/peer_text.h"

namespace tandem {

inline constexpr size_t kMaxWorkerTextBytes = 512;

// Returns the beginning of the text that fits into a log line. A worker's text can have the size of
// a whole message.
inline std::string WorkerText(const std::string& text) {
  return Shortened(text, kMaxWorkerTextBytes);
}

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_SESSIONS_WORKER_TEXT_H_
