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
  std::string certificate;  // of this end, with the ones between it and its authority after it
  std::string key;          // of the certificate
  std::string authorities;  // that the other end's certificate must come from
};

// What the paths were given with, for messages.
struct TlsFlags {
  const char* certificate = "--tls-certificate";
  const char* key = "--tls-key";
  const char* authorities = "--tls-client-ca";
};

// What the files hold: PEM. It was checked that OpenSSL takes it, and that key and certificate
// belong together.
struct TlsPem {
  std::string certificate;
  std::string key;
  std::string authorities;
};

// Read again when they change. Should they not go together then, as while one of two is replaced,
// what they held before stays and the log says why. Thread-safe.
class TlsFiles {
 public:
  // INVALID_ARGUMENT names flag and path. A certificate whose time is over, or near its end, or still
  // to come, is warned of in the log: it is the other end that refuses it.
  static absl::StatusOr<std::shared_ptr<TlsFiles>> Open(TlsPaths paths, TlsFlags flags = {});

  // Looks for a change. The same object as before: there was none.
  std::shared_ptr<const TlsPem> Current();

  bool has_certificate() const { return !paths_.certificate.empty(); }
  bool has_authorities() const { return !paths_.authorities.empty(); }

 private:
  using Stamps = std::array<std::optional<FileStamp>, 3>;

  TlsFiles(TlsPaths paths, TlsFlags flags) : paths_(std::move(paths)), flags_(flags) {}
  Stamps CurrentStamps() const;
  // What the files hold, and whether that makes sense.
  absl::StatusOr<TlsPem> Read() const;
  absl::Status Check(const TlsPem& pem) const;

  const TlsPaths paths_;
  const TlsFlags flags_;
  std::mutex mutex_;
  Stamps stamps_;          // of the files when they were read last
  std::string complaint_;  // of the last look, which is not repeated; empty: there was none
  std::shared_ptr<const TlsPem> pem_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_SECURITY_TLS_FILES_H_
