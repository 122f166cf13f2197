#include "services/worker/slots/page_key.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem {
namespace {

std::string Hex(const KvPageKey& key) {
  std::string text;
  for (const uint8_t byte : key) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::vector<int32_t> SomeIds() {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 64; ++i) ids.push_back(i * 1000003 % 128256);
  return ids;
}

TEST(PageKeyTest, IsTheDocumentedDigest) {
  // Python: hashlib.sha256(hashlib.sha256(b"tenant").digest() + struct.pack("<64i", *ids))
  EXPECT_EQ(Hex(NextPageKey(FirstPageKey("tenant"), SomeIds())),
            "4525d4c1e4274ebf6dc26c08dc652c855a63c41e6743e3491fe419cf1df5d09d");
}

TEST(PageKeyTest, DependsOnTheSaltAndAllTokensUpToItsEnd) {
  const std::vector<int32_t> ids = SomeIds();
  const KvPageKey first = NextPageKey(FirstPageKey(""), ids);
  EXPECT_EQ(first, NextPageKey(FirstPageKey(""), ids));
  EXPECT_NE(first, NextPageKey(FirstPageKey("a"), ids));
  EXPECT_NE(first, NextPageKey(first, ids));
  for (size_t i = 0; i < ids.size(); ++i) {
    std::vector<int32_t> other = ids;
    other[i] ^= 1 << (i % 17);
    EXPECT_NE(first, NextPageKey(FirstPageKey(""), other)) << i;
  }
}

}  // namespace
}  // namespace tandem
