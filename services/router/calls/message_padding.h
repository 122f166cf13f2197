// Messages of few sizes: over TLS, the size of a message tells how many tokens it has, and so how
// much of a draft was accepted, which depends on the text.
#ifndef TANDEM_SERVICES_ROUTER_CALLS_MESSAGE_PADDING_H_
#define TANDEM_SERVICES_ROUTER_CALLS_MESSAGE_PADDING_H_

#include <cstddef>

#include "tandem/v1/generate.pb.h"

namespace tandem {

// Fills `response->padding` until the size of the serialized message is a multiple of `bytes`: the
// smallest one that can be reached. A message that lacks one byte cannot be filled up, and gets the
// next multiple. With 0 `bytes` the message stays as it is.
void PadToMultiple(size_t bytes, v1::GenerateResponse* response);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_CALLS_MESSAGE_PADDING_H_
