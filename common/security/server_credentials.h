// Credentials of a gRPC server.
#ifndef TANDEM_COMMON_SECURITY_SERVER_CREDENTIALS_H_
#define TANDEM_COMMON_SECURITY_SERVER_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "common/security/tls_files.h"

namespace tandem {

// Returns credentials for one port. If `tls` is null, the port is plaintext. If `tls` has
// authorities, a client must show a certificate that comes from them. Each new connection uses the
// contents of the files at that time. Open connections stay.
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(std::shared_ptr<TlsFiles> tls);

}  // namespace tandem

#endif  // TANDEM_COMMON_SECURITY_SERVER_CREDENTIALS_H_
