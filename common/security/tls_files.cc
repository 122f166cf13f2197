#include "common/security/tls_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <spdlog/spdlog.h>

#include <ctime>
#include <vector>

#include "common/status.h"

namespace tandem {
namespace {

constexpr std::time_t kSoonSeconds = 14 * 24 * 3600;

struct FreeOpenSsl {
  void operator()(BIO* object) const { BIO_free(object); }
  void operator()(X509* object) const { X509_free(object); }
  void operator()(EVP_PKEY* object) const { EVP_PKEY_free(object); }
  void operator()(SSL_CTX* object) const { SSL_CTX_free(object); }
};
template <typename T>
using OpenSslPtr = std::unique_ptr<T, FreeOpenSsl>;

using Certificates = std::vector<OpenSslPtr<X509>>;

// OpenSSL's own function would ask on the terminal.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*writes*/, void* /*unused*/) { return -1; }

// Returns OpenSSL's text for the last failure, and clears it.
std::string OpenSslError() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return reason == nullptr ? "unknown error" : reason;
}

OpenSslPtr<BIO> ReadFrom(const std::string& pem) {
  return OpenSslPtr<BIO>(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

absl::StatusOr<Certificates> ParseCertificates(const std::string& where, const std::string& pem) {
  Certificates certificates;
  const OpenSslPtr<BIO> bio = ReadFrom(pem);
  ERR_clear_error();
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr)) {
    certificates.emplace_back(next);
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  if (!at_end) return InvalidArgument(where + "a certificate in it is broken: " + OpenSslError());
  ERR_clear_error();
  if (certificates.empty()) {
    return InvalidArgument(where +
                           "there is no certificate in PEM in it (-----BEGIN CERTIFICATE-----)");
  }
  return certificates;
}

std::time_t ToUnixTime(const ASN1_TIME* time) {
  std::tm parts{};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? timegm(&parts) : 0;
}

std::string DateOf(std::time_t time) {
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

void WarnOfTime(const std::string& where, const X509& certificate) {
  const std::time_t now = std::time(nullptr);
  const std::time_t begin = ToUnixTime(X509_get0_notBefore(&certificate));
  const std::time_t end = ToUnixTime(X509_get0_notAfter(&certificate));
  if (now < begin) {
    spdlog::warn("{}not valid before {}: the other end refuses it", where, DateOf(begin));
  } else if (now > end) {
    spdlog::warn("{}expired on {}: the other end refuses it", where, DateOf(end));
  } else if (now + kSoonSeconds > end) {
    spdlog::warn("{}expires on {}", where, DateOf(end));
  }
}

// Checks the pair in the same way as a connection, and thus also refuses keys that are too weak for
// OpenSSL.
absl::Status CheckPair(const std::string& where_certificate, const std::string& where_key,
                       X509& certificate, const std::string& key_pem) {
  const OpenSslPtr<BIO> bio = ReadFrom(key_pem);
  ERR_clear_error();
  const OpenSslPtr<EVP_PKEY> key(
      PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  if (key == nullptr) {
    return InvalidArgument(
        where_key + "there is no private key in PEM without a passphrase in it: " + OpenSslError());
  }
  const OpenSslPtr<SSL_CTX> context(SSL_CTX_new(TLS_method()));
  if (SSL_CTX_use_certificate(context.get(), &certificate) != 1) {
    return InvalidArgument(where_certificate + OpenSslError());
  }
  if (SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1 ||
      SSL_CTX_check_private_key(context.get()) != 1) {
    return InvalidArgument(where_key + "it is not the certificate's key: " + OpenSslError());
  }
  return absl::OkStatus();
}

std::string Where(const char* flag, const std::string& path) {
  return std::string(flag) + " " + path + ": ";
}

}  // namespace

absl::StatusOr<std::shared_ptr<TlsFiles>> TlsFiles::Open(TlsPaths paths, TlsFlags flags) {
  if (paths.certificate.empty() != paths.key.empty()) {
    return InvalidArgument(std::string(flags.certificate) + " and " + flags.key +
                           " belong together: give both, or neither");
  }
  std::shared_ptr<TlsFiles> files(new TlsFiles(std::move(paths), flags));
  files->stamps_ = files->CurrentStamps();
  TANDEM_ASSIGN_OR_RETURN(TlsPem pem, files->Read());
  TANDEM_RETURN_IF_ERROR(files->Check(pem));
  files->pem_ = std::make_shared<const TlsPem>(std::move(pem));
  return files;
}

std::shared_ptr<const TlsPem> TlsFiles::Current() {
  const std::lock_guard<std::mutex> lock(mutex_);
  // The stamps are taken before the files are read. A change during the reading is then noticed at
  // the next look.
  const Stamps stamps = CurrentStamps();
  if (stamps == stamps_) return pem_;
  absl::StatusOr<TlsPem> pem = Read();
  // If a file could not be read (for lack of a descriptor, for example), all files are read again
  // at the next look, even without another change.
  if (pem.ok()) stamps_ = stamps;
  const absl::Status status = pem.ok() ? Check(*pem) : pem.status();
  if (status.ok()) {
    spdlog::info("TLS: {} read again", has_certificate() ? paths_.certificate : paths_.authorities);
    pem_ = std::make_shared<const TlsPem>(*std::move(pem));
    complaint_.clear();
    return pem_;
  }
  const std::string complaint(status.message());
  if (complaint != complaint_) {
    spdlog::warn("{} (TLS keeps the earlier files)", complaint);
  }
  complaint_ = complaint;
  return pem_;
}

TlsFiles::Stamps TlsFiles::CurrentStamps() const {
  const auto stamp = [](const std::string& path) {
    return path.empty() ? std::nullopt : StampOf(path);
  };
  return {stamp(paths_.certificate), stamp(paths_.key), stamp(paths_.authorities)};
}

absl::StatusOr<TlsPem> TlsFiles::Read() const {
  TlsPem pem;
  if (has_certificate()) {
    TANDEM_ASSIGN_OR_RETURN(pem.certificate,
                            ReadOperatorFile(flags_.certificate, paths_.certificate));
    TANDEM_ASSIGN_OR_RETURN(pem.key, ReadOperatorFile(flags_.key, paths_.key));
  }
  if (has_authorities()) {
    TANDEM_ASSIGN_OR_RETURN(pem.authorities,
                            ReadOperatorFile(flags_.authorities, paths_.authorities));
  }
  return pem;
}

absl::Status TlsFiles::Check(const TlsPem& pem) const {
  if (has_certificate()) {
    const std::string where = Where(flags_.certificate, paths_.certificate);
    TANDEM_RETURN_IF_ERROR(CheckSecretMode(flags_.key, paths_.key));
    TANDEM_ASSIGN_OR_RETURN(const Certificates chain, ParseCertificates(where, pem.certificate));
    TANDEM_RETURN_IF_ERROR(
        CheckPair(where, Where(flags_.key, paths_.key), *chain.front(), pem.key));
    for (const auto& certificate : chain) WarnOfTime(where, *certificate);
  }
  if (has_authorities()) {
    const std::string where = Where(flags_.authorities, paths_.authorities);
    TANDEM_ASSIGN_OR_RETURN(const Certificates all, ParseCertificates(where, pem.authorities));
    for (const auto& certificate : all) WarnOfTime(where, *certificate);
  }
  return absl::OkStatus();
}

}  // namespace tandem
