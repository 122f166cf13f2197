// Makes certificates for tests.
#ifndef TANDEM_TESTS_SECURITY_CERTIFICATES_H_
#define TANDEM_TESTS_SECURITY_CERTIFICATES_H_

#include <filesystem>
#include <memory>
#include <string>

namespace tandem::testing {

// A certificate and its key as PEM.
struct Identity {
  std::string certificate;
  std::string key;
};

// The time in which a certificate is valid, in days from now.
struct Validity {
  int from_days = -1;
  int to_days = 30;
};

class Authority {
 public:
  explicit Authority(const std::string& name);
  ~Authority();
  Authority(const Authority&) = delete;
  Authority& operator=(const Authority&) = delete;

  const std::string& certificate() const;  // PEM
  // Issues a certificate for a server or a client with this DNS name.
  Identity Issue(const std::string& name, const Validity& validity = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes the file under another name and then renames it, so that nobody sees a part of it.
void WriteFile(const std::filesystem::path& path, const std::string& content);

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SECURITY_CERTIFICATES_H_
