// Certificates for tests, made on the spot.
#ifndef TANDEM_TESTS_SECURITY_CERTIFICATES_H_
#define TANDEM_TESTS_SECURITY_CERTIFICATES_H_

#include <filesystem>
#include <memory>
#include <string>

namespace tandem::testing {

// PEM.
struct Identity {
  std::string certificate;
  std::string key;
};

// When a certificate is valid: days from now.
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
  // For a server of that DNS name, or a client of it.
  Identity Issue(const std::string& name, const Validity& validity = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Under another name first, then moved: nobody sees a part of it.
void WriteFile(const std::filesystem::path& path, const std::string& content);

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SECURITY_CERTIFICATES_H_
