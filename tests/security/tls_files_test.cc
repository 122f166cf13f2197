#include "common/security/tls_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <memory>
#include <sstream>
#include <string>

#include "common/security/server_security.h"
#include "tests/security/certificates.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using testing::Authority;
using ::testing::HasSubstr;
using testing::Identity;
using testing::WriteFile;

class TlsFilesTest : public ::testing::Test {
 protected:
  TlsFilesTest() {
    before_ = spdlog::default_logger();
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_)));
  }
  ~TlsFilesTest() override { spdlog::set_default_logger(before_); }

  TlsPaths Paths() const {
    return {(dir_ / "cert.pem").string(), (dir_ / "key.pem").string(), (dir_ / "ca.pem").string()};
  }
  void Write(const Identity& identity) const {
    WriteFile(dir_ / "cert.pem", identity.certificate);
    WriteFile(dir_ / "key.pem", identity.key);
    WriteFile(dir_ / "ca.pem", authority_.certificate());
  }
  std::string Refusal() const { return std::string(TlsFiles::Open(Paths()).status().message()); }

  const Authority authority_{"authority"};
  testing::TempDir dir_;
  std::ostringstream log_;
  std::shared_ptr<spdlog::logger> before_;
};

TEST_F(TlsFilesTest, HaveTheContentsOfTheFiles) {
  const Identity identity = authority_.Issue("localhost");
  Write(identity);
  const auto files = TlsFiles::Open(Paths());
  ASSERT_TRUE(files.ok()) << files.status();
  const auto pem = (*files)->Current();
  EXPECT_EQ(pem->certificate, identity.certificate);
  EXPECT_EQ(pem->key, identity.key);
  EXPECT_EQ(pem->authorities, authority_.certificate());
  EXPECT_EQ((*files)->Current(), pem) << "the same object";
  EXPECT_EQ(log_.str(), "");
}

TEST_F(TlsFilesTest, AreReadAgainWhenTheyBelongTogether) {
  const Identity first = authority_.Issue("localhost");
  const Identity second = authority_.Issue("localhost");
  Write(first);
  const auto files = TlsFiles::Open(Paths());
  ASSERT_TRUE(files.ok()) << files.status();
  WriteFile(dir_ / "cert.pem", second.certificate);
  EXPECT_EQ((*files)->Current()->certificate, first.certificate);
  EXPECT_EQ((*files)->Current()->key, first.key);
  EXPECT_THAT(log_.str(), HasSubstr("it is not the certificate's key"));
  EXPECT_THAT(log_.str(), HasSubstr("TLS keeps the earlier files"));
  WriteFile(dir_ / "key.pem", second.key);
  EXPECT_EQ((*files)->Current()->certificate, second.certificate);
  EXPECT_EQ((*files)->Current()->key, second.key);
  EXPECT_THAT(log_.str(), HasSubstr("read again"));
}

TEST_F(TlsFilesTest, AnUnreadableFileIsReadAgainAtTheNextLook) {
  const Identity first = authority_.Issue("localhost");
  const Identity second = authority_.Issue("localhost");
  Write(first);
  const auto files = TlsFiles::Open(Paths());
  ASSERT_TRUE(files.ok()) << files.status();
  Write(second);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};  // no file can be opened
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto kept = (*files)->Current();
  const std::string said = log_.str();
  log_.str("");
  const auto kept_again = (*files)->Current();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(kept->certificate, first.certificate);
  EXPECT_EQ(kept_again, kept);
  EXPECT_THAT(said, HasSubstr("cannot be read"));
  EXPECT_EQ(log_.str(), "") << "said once";
  EXPECT_EQ((*files)->Current()->certificate, second.certificate);
  EXPECT_THAT(log_.str(), HasSubstr("read again"));
}

TEST_F(TlsFilesTest, FilesThatDoNotBelongTogetherAreRefusedByName) {
  Write(authority_.Issue("localhost"));
  WriteFile(dir_ / "key.pem", authority_.Issue("localhost").key);
  EXPECT_THAT(Refusal(),
              HasSubstr("--tls-key " + Paths().key + ": it is not the certificate's key"));
  WriteFile(dir_ / "key.pem", "no key");
  EXPECT_THAT(Refusal(), HasSubstr("there is no private key in PEM"));
  WriteFile(dir_ / "cert.pem", "");
  EXPECT_THAT(Refusal(), HasSubstr("--tls-certificate " + Paths().certificate +
                                   ": there is no certificate in PEM"));
  std::string broken = authority_.Issue("localhost").certificate;
  broken[broken.size() / 2] = '*';
  WriteFile(dir_ / "cert.pem", broken);
  EXPECT_THAT(Refusal(), HasSubstr("a certificate in it is broken"));
  Write(authority_.Issue("localhost"));
  WriteFile(dir_ / "ca.pem", "x");
  EXPECT_THAT(Refusal(), HasSubstr("--tls-client-ca " + Paths().authorities));
  TlsPaths alone = Paths();
  alone.key.clear();
  EXPECT_THAT(std::string(TlsFiles::Open(alone).status().message()),
              HasSubstr("--tls-certificate and --tls-key belong together"));
  alone.certificate.clear();
  EXPECT_THAT(
      std::string(ServerSecurity::Open({.tls = alone, .token_file = ""}).status().message()),
      HasSubstr("--tls-client-ca is about clients over TLS"));
}

TEST_F(TlsFilesTest, WarnAboutTheTimesOfACertificate) {
  for (const auto& [validity, says] :
       {std::pair<testing::Validity, std::string>{{-9, -2}, "expired on "},
        {{2, 9}, "not valid before "},
        {{-1, 3}, "expires on "}}) {
    log_.str("");
    Write(authority_.Issue("localhost", validity));
    EXPECT_TRUE(TlsFiles::Open(Paths()).ok());
    EXPECT_THAT(log_.str(), HasSubstr("--tls-certificate " + Paths().certificate + ": " + says));
  }
}

}  // namespace
}  // namespace tandem
