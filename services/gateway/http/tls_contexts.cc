#include "services/gateway/http/tls_contexts.h"

#include <spdlog/spdlog.h>

#include <boost/asio/buffer.hpp>
#include <boost/system/system_error.hpp>
#include <string_view>
#include <utility>

namespace tandem::gateway {
namespace {

namespace ssl = boost::asio::ssl;

std::shared_ptr<ssl::context> MakeContext(const TlsPem& pem) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  context->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 |
                       ssl::context::no_tlsv1_1 | SSL_OP_NO_RENEGOTIATION);
  // A client that resumes a session is refused without a name of what the session belongs to, if
  // clients have certificates.
  constexpr std::string_view kSessions = "tandem-gateway";
  SSL_CTX_set_session_id_context(context->native_handle(),
                                 reinterpret_cast<const unsigned char*>(kSessions.data()),
                                 static_cast<unsigned int>(kSessions.size()));
  context->use_certificate_chain(boost::asio::buffer(pem.certificate));
  context->use_private_key(boost::asio::buffer(pem.key), ssl::context::pem);
  if (!pem.authorities.empty()) {
    context->add_certificate_authority(boost::asio::buffer(pem.authorities));
    context->set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert);
  }
  return context;
}

}  // namespace

std::shared_ptr<ssl::context> TlsContexts::Current() {
  std::shared_ptr<const TlsPem> pem = files_->Current();
  if (pem == pem_) return context_;
  pem_ = std::move(pem);
  try {
    context_ = MakeContext(*pem_);
  } catch (const boost::system::system_error& error) {
    spdlog::error("--tls-certificate: OpenSSL refuses the files: {}", error.what());
  }
  return context_;
}

}  // namespace tandem::gateway
