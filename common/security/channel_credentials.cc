#include "common/security/channel_credentials.h"

namespace tandem {

std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(TlsFiles* tls) {
  if (tls == nullptr) return grpc::InsecureChannelCredentials();
  const std::shared_ptr<const TlsPem> pem = tls->Current();
  return grpc::SslCredentials({.pem_root_certs = pem->authorities,
                               .pem_private_key = pem->key,
                               .pem_cert_chain = pem->certificate});
}

}  // namespace tandem
