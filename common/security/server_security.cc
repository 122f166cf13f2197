#include "common/security/server_security.h"

#include "common/status.h"

namespace tandem {

absl::StatusOr<ServerSecurity> ServerSecurity::Open(const ServerSecurityOptions& options) {
  ServerSecurity security;
  const TlsPaths& paths = options.tls;
  if (!paths.authorities.empty() && paths.certificate.empty() && paths.key.empty()) {
    return InvalidArgument(
        "--tls-client-ca is about clients over TLS: give --tls-certificate and --tls-key too");
  }
  if (!paths.certificate.empty() || !paths.key.empty()) {
    TANDEM_ASSIGN_OR_RETURN(security.tls, TlsFiles::Open(paths));
  }
  if (!options.token_file.empty()) {
    TANDEM_ASSIGN_OR_RETURN(security.tokens, TokenFile::Open(options.token_file));
  }
  return security;
}

}  // namespace tandem
