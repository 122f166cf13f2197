// How a command checks the identity of a server, and proves its own.
#ifndef TANDEM_SERVICES_CLI_CLIENT_CLIENT_SECURITY_H_
#define TANDEM_SERVICES_CLI_CLIENT_CLIENT_SECURITY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/security/tls_files.h"

namespace tandem::cli {

struct ClientSecurityOptions {
  TlsPaths tls;            // --tls-certificate, --tls-key, --tls-ca; plaintext without --tls-ca
  std::string token_file;  // --token-file; empty: no token is sent
  bool insecure = false;   // --insecure: the token may go to other machines in plaintext
};

struct ClientSecurity {
  std::shared_ptr<TlsFiles> tls = nullptr;  // null: plaintext, which a Unix socket always uses
  std::string token = {};                   // empty: none

  // INVALID_ARGUMENT names the flag and the path. It is also returned if a token would go in
  // plaintext to an address of another machine without `insecure`.
  static absl::StatusOr<ClientSecurity> Open(const ClientSecurityOptions& options,
                                             const std::string& address);

  // Returns "Bearer …", or nothing if there is no token.
  std::string Authorization() const { return token.empty() ? "" : "Bearer " + token; }
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_CLIENT_CLIENT_SECURITY_H_
