// By what a command knows the server that it talks to, and shows who it is.
#ifndef TANDEM_SERVICES_CLI_CLIENT_CLIENT_SECURITY_H_
#define TANDEM_SERVICES_CLI_CLIENT_CLIENT_SECURITY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/security/tls_files.h"

namespace tandem::cli {

struct ClientSecurityOptions {
  TlsPaths tls;  // --tls-certificate, --tls-key, --tls-ca; without the last one: plaintext
  std::string token_file;  // --token-file; empty: no token is shown
  bool insecure = false;   // --insecure: the token may go in plaintext to other machines
};

struct ClientSecurity {
  std::shared_ptr<TlsFiles> tls = nullptr;  // null: plaintext, as it always is on a Unix socket
  std::string token = {};                   // empty: none

  // INVALID_ARGUMENT names flag and path; a token that would go in plaintext to an address that is
  // not of this machine is one too, unless `insecure`.
  static absl::StatusOr<ClientSecurity> Open(const ClientSecurityOptions& options,
                                             const std::string& address);

  // "Bearer …"; empty: there is no token.
  std::string Authorization() const { return token.empty() ? "" : "Bearer " + token; }
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_CLIENT_CLIENT_SECURITY_H_
