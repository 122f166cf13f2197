#include "common/security/call_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/security/certificates.h"
#include "tests/support/temp_dir.h"

namespace tandem::call_gate_test {
namespace {

constexpr char kClient[] = "Bearer client-token-0123456789";
constexpr char kAdmin[] = "Bearer admin-token-0123456789";

class CallGateTest : public ::testing::Test {
 protected:
  CallGateTest() {
    testing::WriteFile(dir_ / "tokens",
                       "client client-token-0123456789\nadmin admin-token-0123456789\n");
    guarded_ = std::make_unique<CallGate>(CallGate::Methods{{"/a.B/C", "/a.B/D"}, {"/a.B/Admin"}},
                                          *TokenFile::Open((dir_ / "tokens").string()));
  }

  static absl::StatusCode Code(CallGate& gate, const std::string& method,
                               std::vector<std::string_view> authorization) {
    return gate.Check(method, authorization).code();
  }

  testing::TempDir dir_;
  CallGate open_{{.of_clients = {"/a.B/C"}, .of_admins = {"/a.B/Admin"}}, nullptr};
  std::unique_ptr<CallGate> guarded_;
};

TEST_F(CallGateTest, WithoutTokensOnlyKnownMethodsCanBeCalled) {
  EXPECT_EQ(Code(open_, "/a.B/C", {}), absl::StatusCode::kOk);
  EXPECT_EQ(Code(open_, "/a.B/C", {"Bearer whatever"}), absl::StatusCode::kOk);
  for (const char* unknown : {"", "/", "/a.B/D", "/a.B/C/", "a.B/C", "/a.B/c"}) {
    EXPECT_EQ(Code(open_, unknown, {}), absl::StatusCode::kUnimplemented) << unknown;
  }
}

TEST_F(CallGateTest, WithTokensEveryCallNeedsOne) {
  for (const char* method : {"/a.B/C", "/a.B/D", "/a.B/E", "", "/grpc.health.v1.Health/Check"}) {
    for (const std::vector<std::string_view>& authorization :
         std::vector<std::vector<std::string_view>>{
             {},
             {""},
             {"Bearer"},
             {"Bearer "},
             {"client-token-0123456789"},
             {"Basic Y2xpZW50OmNsaWVudC10b2tlbi0wMTIzNDU2Nzg5"},
             {"Bearer client-token-012345678"},
             {"Bearer client-token-01234567890"},
             {kClient, kClient},
             {kClient, "Bearer x"}}) {
      EXPECT_EQ(Code(*guarded_, method, authorization), absl::StatusCode::kUnauthenticated)
          << method << ' ' << authorization.size();
    }
  }
  for (const char* token : {kClient, kAdmin}) {
    EXPECT_EQ(Code(*guarded_, "/a.B/C", {token}), absl::StatusCode::kOk);
    EXPECT_EQ(Code(*guarded_, "/a.B/D", {token}), absl::StatusCode::kOk);
    EXPECT_EQ(Code(*guarded_, "/a.B/E", {token}), absl::StatusCode::kUnimplemented);
  }
}

TEST_F(CallGateTest, MethodsOfAdminsNeedAnAdmin) {
  EXPECT_EQ(Code(*guarded_, "/a.B/Admin", {kAdmin}), absl::StatusCode::kOk);
  EXPECT_EQ(Code(*guarded_, "/a.B/Admin", {kClient}), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Code(*guarded_, "/a.B/Admin", {}), absl::StatusCode::kUnauthenticated);
  // Without tokens, the owner says whether whoever reaches the server is an admin.
  EXPECT_EQ(Code(open_, "/a.B/Admin", {}), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Code(open_, "/a.B/Admin", {kAdmin}), absl::StatusCode::kPermissionDenied);
  CallGate local{
      {.of_clients = {"/a.B/C"}, .of_admins = {"/a.B/Admin"}, .admits_admins_without_tokens = true},
      nullptr};
  EXPECT_EQ(Code(local, "/a.B/Admin", {}), absl::StatusCode::kOk);
  EXPECT_EQ(Code(local, "/a.B/C", {}), absl::StatusCode::kOk);
  EXPECT_EQ(Code(local, "/a.B/D", {}), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace tandem::call_gate_test
