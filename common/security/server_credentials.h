// What a gRPC server listens with.
#ifndef TANDEM_COMMON_SECURITY_SERVER_CREDENTIALS_H_
#define TANDEM_COMMON_SECURITY_SERVER_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "common/security/tls_files.h"

namespace tandem {

// For one port. `tls` null: plaintext; with authorities, a client must show a certificate of
// theirs. Each new connection gets the files as they are then; those that are open stay.
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(std::shared_ptr<TlsFiles> tls);

}  // namespace tandem

#endif  // TANDEM_COMMON_SECURITY_SERVER_CREDENTIALS_H_
