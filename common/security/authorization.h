// The header `authorization` of a call or a request.
#ifndef TANDEM_COMMON_SECURITY_AUTHORIZATION_H_
#define TANDEM_COMMON_SECURITY_AUTHORIZATION_H_

#include <string>
#include <string_view>

namespace tandem {

// Returns the token of "Bearer TOKEN" (RFC 6750). Empty if the header has another form.
std::string BearerToken(std::string_view authorization);

// Returns the password of "Basic …" (RFC 7617), which browsers ask people for. Any user name is
// accepted. Empty if the header has another form.
std::string BasicPassword(std::string_view authorization);

}  // namespace tandem

#endif  // TANDEM_COMMON_SECURITY_AUTHORIZATION_H_
