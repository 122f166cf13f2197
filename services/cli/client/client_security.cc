#include "services/cli/client/client_security.h"

#include "common/security/token_file.h"
#include "common/status.h"
#include "services/cli/client/listen_address.h"

namespace tandem::cli {

namespace {

constexpr TlsFlags kClientTlsFlags = {
    .certificate = "--tls-certificate", .key = "--tls-key", .authorities = "--tls-ca"};

// Returns true if the address certainly belongs to this machine. An address that cannot be parsed
// does not.
bool IsOnThisMachine(const std::string& address) {
  const auto parsed = ParseListenAddress(address);
  return parsed.ok() && IsLocal(*parsed);
}

}  // namespace

absl::StatusOr<ClientSecurity> ClientSecurity::Open(const ClientSecurityOptions& options,
                                                    const std::string& address) {
  ClientSecurity security;
  if (!options.token_file.empty()) {
    TANDEM_ASSIGN_OR_RETURN(security.token, FirstTokenOf("--token-file", options.token_file));
  }
  if (address.rfind(kUnixPrefix, 0) == 0) return security;
  const TlsPaths& paths = options.tls;
  if (!paths.authorities.empty()) {
    TANDEM_ASSIGN_OR_RETURN(security.tls, TlsFiles::Open(paths, kClientTlsFlags));
  } else if (!paths.certificate.empty() || !paths.key.empty()) {
    return InvalidArgument(
        "--tls-certificate and --tls-key are for TLS, which needs --tls-ca: the authority of the "
        "server's certificate");
  }
  if (security.tls == nullptr && !security.token.empty() && !options.insecure &&
      !IsOnThisMachine(address)) {
    return InvalidArgument("--token-file: the token would go to " + address +
                           " in plaintext, and others could read it: use TLS (--tls-ca), "
                           "or allow it (--insecure)");
  }
  return security;
}

}  // namespace tandem::cli
