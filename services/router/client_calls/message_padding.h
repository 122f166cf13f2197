// Pads messages, so that they have few sizes. Over TLS, the size of a message tells the number of
// its tokens, and so how much of a draft was accepted, which depends on the text.
#ifndef TANDEM_SERVICES_ROUTER_CLIENT_CALLS_MESSAGE_PADDING_H_
#define TANDEM_SERVICES_ROUTER_CLIENT_CALLS_MESSAGE_PADDING_H_

#include <cstddef>

#include "tandem/v1/generate.pb.h"

namespace tandem {

// Fills `response->padding` until the size of the serialized message is a multiple of `bytes`, the
// smallest possible multiple. A message that lacks one byte cannot be padded by one byte and gets
// the next multiple. If `bytes` is 0, the message does not change.
void PadToMultiple(size_t bytes, v1::GenerateResponse* response);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_CLIENT_CALLS_MESSAGE_PADDING_H_
