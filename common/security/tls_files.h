// Certificate, key and certificate authorities of one end of TLS, as files that may be replaced.
#ifndef TANDEM_COMMON_SECURITY_TLS_FILES_H_
#define TANDEM_COMMON_SECURITY_TLS_FILES_H_

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/security/operator_file.h"

namespace tandem {

// Empty: none.
struct TlsPaths {
  std::string certificate;  // certificate of this end, followed by its intermediate certificates
  std::string key;          // private key of the certificate
  std::string authorities;  // authorities that the other end's certificate must come from
};

// The flags that the paths were given with, for messages.
struct TlsFlags {
  const char* certificate = "--tls-certificate";
  const char* key = "--tls-key";
  const char* authorities = "--tls-client-ca";
};

// The contents of the files in PEM. OpenSSL has accepted them, and key and certificate belong
// together.
struct TlsPem {
  std::string certificate;
  std::string key;
  std::string authorities;
};

// TLS files that are read again when they change. If they do not belong together then, for example
// while one of two files is being replaced, the earlier contents stay and the log says why.
// Thread-safe.
class TlsFiles {
 public:
  // INVALID_ARGUMENT: the message names flag and path. The log has a warning if a certificate has
  // expired, expires soon, or is not yet valid. The other end refuses it.
  static absl::StatusOr<std::shared_ptr<TlsFiles>> Open(TlsPaths paths, TlsFlags flags = {});

  // Looks for a change of the files. Returns the same object as before if there was none.
  std::shared_ptr<const TlsPem> Current();

  bool has_certificate() const { return !paths_.certificate.empty(); }
  bool has_authorities() const { return !paths_.authorities.empty(); }

 private:
  using Stamps = std::array<std::optional<FileStamp>, 3>;

  TlsFiles(TlsPaths paths, TlsFlags flags) : paths_(std::move(paths)), flags_(flags) {}
  Stamps CurrentStamps() const;
  // Reads the files and checks their contents.
  absl::StatusOr<TlsPem> Read() const;
  absl::Status Check(const TlsPem& pem) const;

  const TlsPaths paths_;
  const TlsFlags flags_;
  std::mutex mutex_;
  Stamps stamps_;          // stamps of the files when they were read last
  std::string complaint_;  // the last complaint, which the log does not repeat
  std::shared_ptr<const TlsPem> pem_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_SECURITY_TLS_FILES_H_
