// What a gRPC client connects with.
#ifndef TANDEM_COMMON_SECURITY_CHANNEL_CREDENTIALS_H_
#define TANDEM_COMMON_SECURITY_CHANNEL_CREDENTIALS_H_

#include <grpcpp/security/credentials.h>

#include <memory>

#include "common/security/tls_files.h"

namespace tandem {

// For a new channel, with the files as they are now. `tls` null: plaintext. Its authorities are
// those that the server's certificate must come from, and its certificate is shown to the server.
std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(TlsFiles* tls);

}  // namespace tandem

#endif  // TANDEM_COMMON_SECURITY_CHANNEL_CREDENTIALS_H_
