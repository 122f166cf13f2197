#include "common/security/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <filesystem>
#include <memory>
#include <sstream>
#include <string>

#include "tests/security/certificates.h"
#include "tests/support/temp_dir.h"

namespace tandem::token_file_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::WriteFile;

constexpr char kClient[] = "client-token-0123456789";
constexpr char kAdmin[] = "admin-token-0123456789=";

class TokenFileTest : public ::testing::Test {
 protected:
  TokenFileTest() {
    before_ = spdlog::default_logger();
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_)));
  }
  ~TokenFileTest() override { spdlog::set_default_logger(before_); }

  std::string Path() const { return (dir_ / "tokens").string(); }
  void Write(const std::string& content) const { WriteFile(Path(), content); }

  testing::TempDir dir_;
  std::ostringstream log_;
  std::shared_ptr<spdlog::logger> before_;
};

TEST(ParseTokensTest, LinesNameARoleAndAToken) {
  const auto tokens = ParseTokens(std::string("# who may\n\nclient ") + kClient + "\r\n\t admin  " +
                                  kAdmin + "  \n#admin x");
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  ASSERT_EQ(tokens->size(), 2u);
  EXPECT_EQ((*tokens)[0].role, Role::kClient);
  EXPECT_EQ((*tokens)[0].text, kClient);
  EXPECT_EQ((*tokens)[1].role, Role::kAdmin);
  EXPECT_EQ((*tokens)[1].text, kAdmin);
}

TEST(ParseTokensTest, AnyOtherLineIsRefusedByItsNumberAndNotRepeated) {
  const std::string secret = "sEcReT0123456789abc";
  for (const auto& [text, says] :
       {std::pair<std::string, std::string>{secret, "line 1: want `client TOKEN`"},
        {"client\n", "line 1: want"},
        {"root " + secret, "line 1: want"},
        {"Client " + secret, "line 1: want"},
        {"client " + secret + " more", "line 1: want"},
        {"#\nclient sEcReT", "line 2: the token has 6 characters, want 16 to 512"},
        {"client " + std::string(513, 'x'), "513 characters"},
        {"client " + secret + "\"", "a character that is none of"},
        {"client " + secret + "\nadmin " + secret, "line 2: the file has this token twice"},
        {"", "no token"},
        {"# nobody\n", "no token"}}) {
    const auto refused = ParseTokens(text);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr(says));
    EXPECT_THAT(std::string(refused.status().message()), Not(HasSubstr("sEcReT")));
  }
  std::string many;
  for (int i = 0; i < 1025; ++i) many += "client 0123456789abcdef" + std::to_string(i) + "\n";
  EXPECT_THAT(std::string(ParseTokens(many).status().message()), HasSubstr("at most 1024"));
}

TEST_F(TokenFileTest, KnowsTheRoleOfAToken) {
  Write(std::string("client ") + kClient + "\nadmin " + kAdmin + "\n");
  const auto file = TokenFile::Open(Path());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->RoleOf(kClient), Role::kClient);
  EXPECT_EQ((*file)->RoleOf(kAdmin), Role::kAdmin);
  for (const std::string& none : {std::string(), std::string(kClient) + "0",
                                  std::string(kClient, 22), std::string(600, 'x')}) {
    EXPECT_EQ((*file)->RoleOf(none), Role::kNone) << none;
  }
  EXPECT_EQ(*FirstTokenOf("--token-file", Path()), kClient);
}

TEST_F(TokenFileTest, IsReadAgainWhenItChanges) {
  Write(std::string("client ") + kClient);
  const auto file = TokenFile::Open(Path(), /*look_seconds=*/0);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->RoleOf(kAdmin), Role::kNone);
  Write(std::string("admin ") + kAdmin);
  EXPECT_EQ((*file)->RoleOf(kAdmin), Role::kAdmin);
  EXPECT_EQ((*file)->RoleOf(kClient), Role::kNone) << "taken away";
  EXPECT_THAT(log_.str(), HasSubstr("read again, 1 tokens"));
}

TEST_F(TokenFileTest, TokensStayWhenTheFileIsInvalid) {
  Write(std::string("client ") + kClient);
  const auto file = TokenFile::Open(Path(), /*look_seconds=*/0);
  ASSERT_TRUE(file.ok()) << file.status();
  Write("client tooshort");
  EXPECT_EQ((*file)->RoleOf(kClient), Role::kClient);
  EXPECT_THAT(log_.str(), HasSubstr("line 1: the token has 8 characters"));
  std::filesystem::remove(Path());
  log_.str("");
  EXPECT_EQ((*file)->RoleOf(kClient), Role::kClient);
  EXPECT_THAT(log_.str(), HasSubstr("No such file"));
  log_.str("");
  EXPECT_EQ((*file)->RoleOf(kClient), Role::kClient);
  EXPECT_EQ(log_.str(), "") << "said once";
  Write(std::string("admin ") + kClient);
  EXPECT_EQ((*file)->RoleOf(kClient), Role::kAdmin);
}

// While this object lives, no file can be opened, although all files exist.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{.rlim_cur = 0, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST_F(TokenFileTest, AnUnreadableFileIsReadAgainAtTheNextLook) {
  Write(std::string("client ") + kClient);
  const auto file = TokenFile::Open(Path(), /*look_seconds=*/0);
  ASSERT_TRUE(file.ok()) << file.status();
  Write(std::string("admin ") + kAdmin);
  {
    const NoDescriptors none;
    EXPECT_EQ((*file)->RoleOf(kClient), Role::kClient);
    EXPECT_THAT(log_.str(), HasSubstr("cannot be read"));
    log_.str("");
    EXPECT_EQ((*file)->RoleOf(kAdmin), Role::kNone);
    EXPECT_EQ(log_.str(), "") << "said once";
  }
  EXPECT_EQ((*file)->RoleOf(kAdmin), Role::kAdmin);
  EXPECT_EQ((*file)->RoleOf(kClient), Role::kNone);
  EXPECT_THAT(log_.str(), HasSubstr("read again, 1 tokens"));
}

TEST_F(TokenFileTest, AFileThatCannotBeReadIsNamed) {
  const auto says = [&] { return std::string(TokenFile::Open(Path()).status().message()); };
  EXPECT_THAT(says(), HasSubstr("--token-file " + Path() + ": No such file"));
  std::filesystem::create_directory(Path());
  EXPECT_THAT(says(), HasSubstr("this is not a file"));
  std::filesystem::remove(Path());
  Write(std::string((1 << 20) + 1, '#'));
  EXPECT_THAT(says(), HasSubstr("1048577 bytes"));
  Write("");
  EXPECT_THAT(says(), HasSubstr("no token"));
}

TEST_F(TokenFileTest, OthersMayNotWriteItAndShouldNotReadIt) {
  using std::filesystem::perms;
  Write(std::string("client ") + kClient);
  EXPECT_TRUE(TokenFile::Open(Path()).ok());
  EXPECT_EQ(log_.str(), "");
  std::filesystem::permissions(Path(), perms::others_read, std::filesystem::perm_options::add);
  EXPECT_TRUE(TokenFile::Open(Path()).ok());
  EXPECT_THAT(log_.str(), HasSubstr("every user of this machine can read it"));
  std::filesystem::permissions(Path(), perms::others_write, std::filesystem::perm_options::add);
  EXPECT_THAT(std::string(TokenFile::Open(Path()).status().message()),
              HasSubstr("every user of this machine can write it"));
}

}  // namespace
}  // namespace tandem::token_file_test
