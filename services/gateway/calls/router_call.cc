#include "services/gateway/calls/router_call.h"

#include <charconv>

namespace tandem::gateway {

CallEnd EndOf(const grpc::ClientContext& context, const grpc::Status& status) {
  CallEnd end;
  end.status =
      absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  if (status.ok()) return end;
  const auto& trailing = context.GetServerTrailingMetadata();
  // The router says this at the end of every Generate that fails.
  end.is_from_router = trailing.find("tandem-emitted-tokens") != trailing.end();
  if (const auto found = trailing.find("grpc-retry-pushback-ms"); found != trailing.end()) {
    int milliseconds = 0;
    const char* const begin = found->second.data();
    const auto [stop, error] = std::from_chars(begin, begin + found->second.size(), milliseconds);
    if (error == std::errc() && milliseconds > 0) end.retry_milliseconds = milliseconds;
  }
  return end;
}

}  // namespace tandem::gateway
