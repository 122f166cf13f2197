// Credentials of a gRPC client.
#ifndef TANDEM_COMMON_SECURITY_CHANNEL_CREDENTIALS_H_
#define TANDEM_COMMON_SECURITY_CHANNEL_CREDENTIALS_H_

#include <grpcpp/security/credentials.h>

#include <memory>

#include "common/security/tls_files.h"

namespace tandem {

// Returns credentials for a new channel, with the present contents of the files. If `tls` is null,
// the channel is plaintext. The server's certificate must come from the authorities in `tls`, and
// the certificate in `tls` is shown to the server.
std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(TlsFiles* tls);

}  // namespace tandem

#endif  // TANDEM_COMMON_SECURITY_CHANNEL_CREDENTIALS_H_
