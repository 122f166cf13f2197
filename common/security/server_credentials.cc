#include "common/security/server_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpcpp/security/auth_metadata_processor.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tandem {
namespace {

// Answers gRPC's questions about each new connection, on gRPC's own threads.
class Doorkeeper {
 public:
  explicit Doorkeeper(std::shared_ptr<TlsFiles> tls) : tls_(std::move(tls)) {}

  static grpc_ssl_certificate_config_reload_status FetchCertificate(
      void* self, grpc_ssl_server_certificate_config** config) {
    return static_cast<Doorkeeper*>(self)->FetchCertificate(config);
  }

 private:
  grpc_ssl_certificate_config_reload_status FetchCertificate(
      grpc_ssl_server_certificate_config** config) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::shared_ptr<const TlsPem> pem = tls_->Current();
    if (pem == given_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair{pem->key.c_str(), pem->certificate.c_str()};
    // gRPC requires authorities even if clients need no certificate. They are not used then.
    const std::string& authorities = pem->authorities.empty() ? pem->certificate : pem->authorities;
    *config = grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
    given_ = std::move(pem);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const std::shared_ptr<TlsFiles> tls_;
  std::mutex mutex_;
  std::shared_ptr<const TlsPem> given_;
};

// gRPC may ask until the last connection of a server is gone, and does not report that moment.
// These objects therefore stay until the process ends.
Doorkeeper* NewDoorkeeper(std::shared_ptr<TlsFiles> tls) {
  static std::mutex mutex;
  static auto* const doorkeepers = new std::vector<std::unique_ptr<Doorkeeper>>;
  const std::lock_guard<std::mutex> lock(mutex);
  return doorkeepers->emplace_back(std::make_unique<Doorkeeper>(std::move(tls))).get();
}

// gRPC's C++ classes read changed certificates at intervals, from files that they do not check. The
// C functions below these classes allow our own checks (docs/adr/0016).
class TlsCredentials final : public grpc::ServerCredentials {
 public:
  explicit TlsCredentials(std::shared_ptr<TlsFiles> tls) {
    const bool mutual = tls->has_authorities();
    credentials_ = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            mutual ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                   : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
            Doorkeeper::FetchCertificate, NewDoorkeeper(std::move(tls))));
  }
  ~TlsCredentials() override { grpc_server_credentials_release(credentials_); }
  TlsCredentials(const TlsCredentials&) = delete;
  TlsCredentials& operator=(const TlsCredentials&) = delete;

  // Processors must not be used. gRPC 1.51 passes all metadata to a processor as text, and aborts
  // the process when a client sends the key grpclb_client_stats, which has no text. The services
  // check their calls instead.
  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* credentials_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(std::shared_ptr<TlsFiles> tls) {
  if (tls == nullptr) return grpc::InsecureServerCredentials();
  return std::make_shared<TlsCredentials>(std::move(tls));
}

}  // namespace tandem
