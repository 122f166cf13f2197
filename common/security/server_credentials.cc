#include "common/security/server_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpcpp/security/auth_metadata_processor.h>

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem {
namespace {

std::string_view ViewOf(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)), GRPC_SLICE_LENGTH(slice)};
}

// What gRPC asks, on its own threads, about connections and calls. It belongs to the credentials,
// which gRPC holds for as long as a server listens with them.
class Doorkeeper {
 public:
  Doorkeeper(std::shared_ptr<TlsFiles> tls, std::shared_ptr<CallGate> gate)
      : tls_(std::move(tls)), gate_(std::move(gate)) {}

  // For a new connection.
  static grpc_ssl_certificate_config_reload_status FetchCertificate(
      void* self, grpc_ssl_server_certificate_config** config) {
    return static_cast<Doorkeeper*>(self)->FetchCertificate(config);
  }

  // For a new call, before it is matched with any handler.
  static void CheckCall(void* self, grpc_auth_context* /*context*/, const grpc_metadata* metadata,
                        size_t num_metadata, grpc_process_auth_metadata_done_cb done,
                        void* user_data) {
    CallGate* gate = static_cast<Doorkeeper*>(self)->gate_.get();
    std::string_view method;
    std::vector<std::string_view> authorization;
    std::vector<grpc_metadata> secrets;  // which no handler has to see
    for (size_t i = 0; i < num_metadata; ++i) {
      const std::string_view key = ViewOf(metadata[i].key);
      if (key == ":path") method = ViewOf(metadata[i].value);
      if (key != "authorization") continue;
      authorization.push_back(ViewOf(metadata[i].value));
      secrets.push_back(metadata[i]);
    }
    const absl::Status status =
        gate == nullptr ? absl::OkStatus() : gate->Check(method, authorization);
    const std::string message(status.message());
    done(user_data, secrets.data(), secrets.size(), nullptr, 0,
         static_cast<grpc_status_code>(status.code()), message.c_str());
  }

  static void Destroy(void* self) { delete static_cast<Doorkeeper*>(self); }

 private:
  grpc_ssl_certificate_config_reload_status FetchCertificate(
      grpc_ssl_server_certificate_config** config) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::shared_ptr<const TlsPem> pem = tls_->Current();
    if (pem == given_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair{pem->key.c_str(), pem->certificate.c_str()};
    // gRPC wants authorities even where no client is asked for a certificate: then nobody looks.
    const std::string& authorities = pem->authorities.empty() ? pem->certificate : pem->authorities;
    *config = grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
    given_ = std::move(pem);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const std::shared_ptr<TlsFiles> tls_;
  const std::shared_ptr<CallGate> gate_;
  std::mutex mutex_;
  std::shared_ptr<const TlsPem> given_;
};

// gRPC's C++ classes check calls over TLS alone, and read certificates again by a timer, from
// files that it does not check. The calls below them do both as it is wanted here (docs/adr/0016).
class GuardedCredentials final : public grpc::ServerCredentials {
 public:
  GuardedCredentials(std::shared_ptr<TlsFiles> tls, std::shared_ptr<CallGate> gate) {
    const bool encrypted = tls != nullptr;
    const bool mutual = encrypted && tls->has_authorities();
    auto* doorkeeper = new Doorkeeper(std::move(tls), std::move(gate));
    credentials_ = encrypted
                       ? grpc_ssl_server_credentials_create_with_options(
                             grpc_ssl_server_credentials_create_options_using_config_fetcher(
                                 mutual ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                        : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
                                 Doorkeeper::FetchCertificate, doorkeeper))
                       : grpc_insecure_server_credentials_create();
    grpc_server_credentials_set_auth_metadata_processor(
        credentials_,
        {.process = Doorkeeper::CheckCall, .destroy = Doorkeeper::Destroy, .state = doorkeeper});
  }
  ~GuardedCredentials() override { grpc_server_credentials_release(credentials_); }
  GuardedCredentials(const GuardedCredentials&) = delete;
  GuardedCredentials& operator=(const GuardedCredentials&) = delete;

  // There is one already.
  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* credentials_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(std::shared_ptr<TlsFiles> tls,
                                                               std::shared_ptr<CallGate> gate) {
  if (tls == nullptr && gate == nullptr) return grpc::InsecureServerCredentials();
  return std::make_shared<GuardedCredentials>(std::move(tls), std::move(gate));
}

}  // namespace tandem
