#include "common/security/authorization.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(AuthorizationTest, ABearerTokenIsTheTextAfterTheScheme) {
  EXPECT_EQ(BearerToken("Bearer abc.DEF-1"), "abc.DEF-1");
  EXPECT_EQ(BearerToken("bearer   abc"), "abc");
  for (const char* none :
       {"", "Bearer", "Bearer ", "Bearerabc", "Basic abc", "abc", " Bearer abc"}) {
    EXPECT_EQ(BearerToken(none), "") << none;
  }
}

TEST(AuthorizationTest, APasswordIsTheTextAfterTheFirstColon) {
  EXPECT_EQ(BasicPassword("Basic dGFuZGVtOnMzY3JldA=="), "s3cret");  // tandem:s3cret
  EXPECT_EQ(BasicPassword("basic OmE6Yg=="), "a:b");                 // :a:b
  for (const char* none : {"", "Basic", "Basic ", "Basic !!!!", "Basic dGFuZGVt", "Bearer OmE="}) {
    EXPECT_EQ(BasicPassword(none), "") << none;
  }
}

}  // namespace
}  // namespace tandem
