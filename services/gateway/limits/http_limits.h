// Limits on what clients of the gateway may take.
#ifndef TANDEM_SERVICES_GATEWAY_LIMITS_HTTP_LIMITS_H_
#define TANDEM_SERVICES_GATEWAY_LIMITS_HTTP_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace tandem::gateway {

// The table of flags (common/flags) has the defaults. docs/openai.md describes the others.
struct HttpLimits {
  uint32_t header_bytes = 16 << 10;
  uint64_t body_bytes = 8 << 20;
  uint64_t answer_bytes = 32 << 20;     // an answer that is collected until it is whole
  uint64_t all_held_bytes = 256 << 20;  // all exchanges together, beyond their shares
  uint64_t share_bytes = 64 << 10;      // what an exchange may hold in any case
  int connections = 4096;
  double request_seconds = 30;           // for a whole request to arrive, from its first byte on
  double idle_seconds = 75;              // for the first byte of a request
  double write_seconds = 30;             // for a client to take a piece of an answer
  double body_rate = 16 << 10;           // bytes per second that a body beyond the share must have
  double body_window_seconds = 2;        // the time over which the rate is looked at
  double broken_look_seconds = 1;        // between two looks at a client whose bytes are not read
  uint64_t large_body_bytes = 64 << 10;  // one body of this size or more is parsed at a time
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_LIMITS_HTTP_LIMITS_H_
