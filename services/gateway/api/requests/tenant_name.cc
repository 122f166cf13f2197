#include "services/gateway/api/requests/tenant_name.h"

#include "common/status.h"

namespace tandem::gateway {

absl::StatusOr<std::string> TenantName(std::string_view user) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  constexpr size_t kMaxBytes = 256;  // the router's limit
  std::string name;
  for (const char c : user) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte > 0x20 && byte < 0x7f && c != '%') {
      name += c;
    } else {
      name += {'%', kDigits[byte >> 4], kDigits[byte & 0xf]};
    }
    if (name.size() > kMaxBytes) {
      return InvalidArgument("user: got " + std::to_string(user.size()) +
                             " bytes, allowed: at most 256 (three for each that is no printable "
                             "ASCII)");
    }
  }
  return name;
}

}  // namespace tandem::gateway
