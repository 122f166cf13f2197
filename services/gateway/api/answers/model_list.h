// Writes the answers about the served model.
#ifndef TANDEM_SERVICES_GATEWAY_API_ANSWERS_MODEL_LIST_H_
#define TANDEM_SERVICES_GATEWAY_API_ANSWERS_MODEL_LIST_H_

#include <cstdint>
#include <string>

#include "tandem/v1/generate.pb.h"

namespace tandem::gateway {

// One model of the list, in OpenAI's shape with vLLM's max_model_len. `created` is when this
// process began to serve: the router does not tell when it did.
std::string ModelBody(const v1::ServerInfo& info, int64_t created);
std::string ModelListBody(const v1::ServerInfo& info, int64_t created);

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_ANSWERS_MODEL_LIST_H_
