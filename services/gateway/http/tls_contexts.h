// TLS for new connections, with the present contents of the files.
#ifndef TANDEM_SERVICES_GATEWAY_HTTP_TLS_CONTEXTS_H_
#define TANDEM_SERVICES_GATEWAY_HTTP_TLS_CONTEXTS_H_

#include <boost/asio/ssl/context.hpp>
#include <memory>

#include "common/security/tls_files.h"

namespace tandem::gateway {

// Used by one thread at a time.
class TlsContexts {
 public:
  explicit TlsContexts(std::shared_ptr<TlsFiles> files) : files_(std::move(files)) {}

  // Connections that have an earlier context keep it. Null: OpenSSL refuses the first contents, and
  // the log says why.
  std::shared_ptr<boost::asio::ssl::context> Current();

 private:
  const std::shared_ptr<TlsFiles> files_;
  std::shared_ptr<const TlsPem> pem_;  // what the context was made from
  std::shared_ptr<boost::asio::ssl::context> context_;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_HTTP_TLS_CONTEXTS_H_
