#include "tests/security/certificates.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <fstream>
#include <stdexcept>

namespace tandem::testing {
namespace {

template <typename Write>
std::string ToPem(const Write& write) {
  BIO* bio = BIO_new(BIO_s_mem());
  if (write(bio) != 1) throw std::runtime_error("cannot write PEM");
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string pem(data, static_cast<size_t>(size));
  BIO_free(bio);
  return pem;
}

std::string ToPem(X509* certificate) {
  return ToPem([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

void AddExtension(X509* certificate, int kind, const std::string& value) {
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str());
  if (extension == nullptr) throw std::runtime_error("bad extension " + value);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// A certificate without an `issuer` signs itself.
X509* MakeCertificate(const std::string& name, EVP_PKEY* key, X509* issuer, EVP_PKEY* issuer_key,
                      const Validity& validity) {
  static std::atomic<int> serial = 1;
  X509* made = X509_new();
  X509_set_version(made, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(made), serial++);
  X509_time_adj_ex(X509_getm_notBefore(made), validity.from_days, 0, nullptr);
  X509_time_adj_ex(X509_getm_notAfter(made), validity.to_days, 0, nullptr);
  X509_NAME* subject = X509_get_subject_name(made);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(made, issuer == nullptr ? subject : X509_get_subject_name(issuer));
  X509_set_pubkey(made, key);
  AddExtension(made, NID_basic_constraints, issuer == nullptr ? "critical,CA:TRUE" : "CA:FALSE");
  if (issuer != nullptr) AddExtension(made, NID_subject_alt_name, "DNS:" + name);
  if (X509_sign(made, issuer_key, EVP_sha256()) == 0) throw std::runtime_error("cannot sign");
  return made;
}

}  // namespace

struct Authority::Impl {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = nullptr;
  std::string pem;
};

Authority::Authority(const std::string& name) : impl_(std::make_unique<Impl>()) {
  impl_->certificate = MakeCertificate(name, impl_->key, nullptr, impl_->key, {});
  impl_->pem = ToPem(impl_->certificate);
}

Authority::~Authority() {
  X509_free(impl_->certificate);
  EVP_PKEY_free(impl_->key);
}

const std::string& Authority::certificate() const { return impl_->pem; }

Identity Authority::Issue(const std::string& name, const Validity& validity) const {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = MakeCertificate(name, key, impl_->certificate, impl_->key, validity);
  Identity identity;
  identity.certificate = ToPem(certificate);
  identity.key = ToPem([&](BIO* bio) {
    return PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
  X509_free(certificate);
  EVP_PKEY_free(key);
  return identity;
}

void WriteFile(const std::filesystem::path& path, const std::string& content) {
  const std::filesystem::path other = path.string() + ".new";
  std::ofstream(other) << content;
  std::filesystem::permissions(
      other, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  std::filesystem::rename(other, path);
}

}  // namespace tandem::testing
