#include "services/gateway/api/answers/model_list.h"

#include "services/gateway/api/answers/json_text.h"

namespace tandem::gateway {

std::string ModelBody(const v1::ServerInfo& info, int64_t created) {
  const std::string name = JsonText(info.model());
  return "{\"id\":" + name + ",\"object\":\"model\",\"created\":" + std::to_string(created) +
         ",\"owned_by\":\"tandem\",\"root\":" + name +
         ",\"parent\":null,\"max_model_len\":" + std::to_string(info.max_context_tokens()) + "}";
}

std::string ModelListBody(const v1::ServerInfo& info, int64_t created) {
  return "{\"object\":\"list\",\"data\":[" + ModelBody(info, created) + "]}";
}

}  // namespace tandem::gateway
