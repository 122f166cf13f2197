// The answer to a request that gets no place.
#ifndef TANDEM_SERVICES_ROUTER_ADMISSION_REFUSAL_H_
#define TANDEM_SERVICES_ROUTER_ADMISSION_REFUSAL_H_

#include "absl/status/status.h"

namespace tandem {

struct Refusal {
  absl::Status status;
  int retry_milliseconds = 0;  // when the client should come back; 0: no hint
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ADMISSION_REFUSAL_H_
