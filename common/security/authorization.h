// The header `authorization` of a call or a request.
#ifndef TANDEM_COMMON_SECURITY_AUTHORIZATION_H_
#define TANDEM_COMMON_SECURITY_AUTHORIZATION_H_

#include <string>
#include <string_view>

namespace tandem {

// Of "Bearer TOKEN" (RFC 6750). Empty: it is something else.
std::string BearerToken(std::string_view authorization);

// The password of "Basic …" (RFC 7617), which is what browsers ask people for; any name goes with
// it. Empty: it is something else.
std::string BasicPassword(std::string_view authorization);

}  // namespace tandem

#endif  // TANDEM_COMMON_SECURITY_AUTHORIZATION_H_
