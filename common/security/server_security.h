// Who may call a process: the files that its flags name, opened and checked.
#ifndef TANDEM_COMMON_SECURITY_SERVER_SECURITY_H_
#define TANDEM_COMMON_SECURITY_SERVER_SECURITY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/security/tls_files.h"
#include "common/security/token_file.h"

namespace tandem {

struct ServerSecurityOptions {
  TlsPaths tls;            // --tls-certificate, --tls-key, --tls-client-ca
  std::string token_file;  // --token-file
};

struct ServerSecurity {
  std::shared_ptr<TlsFiles> tls;      // null: plaintext
  std::shared_ptr<TokenFile> tokens;  // null: everybody who reaches the port may do everything

  // INVALID_ARGUMENT: the message names flag and path.
  static absl::StatusOr<ServerSecurity> Open(const ServerSecurityOptions& options);

  bool mutual_tls() const { return tls != nullptr && tls->has_authorities(); }
};

}  // namespace tandem

#endif  // TANDEM_COMMON_SECURITY_SERVER_SECURITY_H_
