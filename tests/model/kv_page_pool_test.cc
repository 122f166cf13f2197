#include "common/model/kv/kv_page_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tandem::kv_page_pool_test {
namespace {

using ::testing::HasSubstr;

// Two layers with one KV head of size 6. A page takes 6 KiB.
ModelDescription Config() {
  ModelDescription config;
  config.num_layers = 2;
  config.attention.num_kv_heads = 1;
  config.attention.head_size = 6;
  return config;
}

std::unique_ptr<KvPagePool> PoolOf(size_t num_pages) {
  return *KvPagePool::Create(Config(), num_pages * HostKvMemory::PageBytes(Config()));
}

KvPageKey Key(uint32_t name) {
  KvPageKey key = {};
  std::memcpy(key.data() + 4, &name, sizeof(name));
  return key;
}

TEST(KvPagePoolTest, HasAllPagesThatFit) {
  const uint64_t page_bytes = HostKvMemory::PageBytes(Config());
  EXPECT_EQ(page_bytes, 64u * 2 * 1 * 6 * 2 * 4);
  EXPECT_EQ(HostKvMemory::Bytes(Config(), 0), 0u);
  EXPECT_EQ(HostKvMemory::Bytes(Config(), 64), page_bytes);
  EXPECT_EQ(HostKvMemory::Bytes(Config(), 65), 2 * page_bytes);
  const auto pool = *KvPagePool::Create(Config(), 3 * page_bytes + page_bytes / 2);
  EXPECT_EQ(pool->num_pages(), 3u);
  EXPECT_EQ(pool->num_free(), 3u);
  EXPECT_EQ(pool->page_bytes(), page_bytes);
  const auto too_small = KvPagePool::Create(Config(), page_bytes - 1);
  EXPECT_EQ(too_small.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(too_small.status().message()),
              HasSubstr("6143 bytes (--kv-cache-bytes) hold no page: one page of 64 tokens takes "
                        "6144"));
  const auto too_large = KvPagePool::Create(Config(), uint64_t{1} << 62);
  EXPECT_EQ(too_large.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(KvPagePoolTest, PagesAreDifferentAndComeBack) {
  const auto pool = PoolOf(3);
  std::vector<KvPage> pages;
  std::set<float*> places;
  for (int i = 0; i < 3; ++i) {
    pages.push_back(pool->Take());
    ASSERT_TRUE(pages.back());
    EXPECT_TRUE(pages.back().is_writable());
    places.insert(pages.back().data());
  }
  EXPECT_EQ(places.size(), 3u);
  EXPECT_EQ(pool->num_free(), 0u);
  EXPECT_FALSE(pool->Take());
  pages.erase(pages.begin() + 1);
  EXPECT_EQ(pool->num_free(), 1u);
  EXPECT_EQ(places.count(pool->Take().data()), 1u);
}

TEST(KvPagePoolTest, AUsedPageIsTakenBeforeAnUntouchedOne) {
  const auto pool = PoolOf(100);
  std::set<float*> places;
  for (int i = 0; i < 10; ++i) {
    const KvPage first = pool->Take();
    const KvPage second = pool->Take();
    places.insert({first.data(), second.data()});
  }
  EXPECT_EQ(places.size(), 2u);
}

TEST(KvPagePoolTest, APublishedPageIsFoundWhileLeasedAndAfterwards) {
  const auto pool = PoolOf(2);
  EXPECT_FALSE(pool->Find(Key(1)));
  KvPage page = pool->Take();
  float* const place = page.data();
  pool->Publish(page, Key(1));
  EXPECT_FALSE(page.is_writable());
  {
    const KvPage again = pool->Find(Key(1));
    ASSERT_TRUE(again);
    EXPECT_EQ(again.data(), place);
    EXPECT_TRUE(again.is_shared());
    EXPECT_TRUE(page.is_shared());
    EXPECT_EQ(pool->num_free(), 1u) << "one page, however many hold it";
  }
  EXPECT_FALSE(page.is_shared());
  page = KvPage();
  EXPECT_EQ(pool->num_free(), 2u);
  EXPECT_EQ(pool->num_published(), 1u);
  EXPECT_FALSE(pool->Find(Key(2)));
  const KvPage found = pool->Find(Key(1));
  EXPECT_EQ(found.data(), place);
  EXPECT_FALSE(found.is_shared());
  EXPECT_EQ(pool->num_free(), 1u);
}

TEST(KvPagePoolTest, TheLeastRecentlyUsedPageIsForgottenFirst) {
  const auto pool = PoolOf(3);
  {
    std::vector<KvPage> pages;
    for (uint32_t name = 0; name < 3; ++name) {
      pages.push_back(pool->Take());
      pool->Publish(pages.back(), Key(name));
    }
    for (KvPage& page : pages) page = KvPage();
  }
  pool->Find(Key(0));  // used once more, and given back
  const KvPage first = pool->Take();
  EXPECT_FALSE(pool->Find(Key(1)));
  EXPECT_TRUE(pool->Find(Key(0)));
  EXPECT_TRUE(pool->Find(Key(2)));
  EXPECT_TRUE(first.is_writable());
  const KvPage kept = pool->Find(Key(2));
  const KvPage second = pool->Take();
  EXPECT_FALSE(pool->Find(Key(0)));
  EXPECT_FALSE(pool->Take()) << "a leased page is never forgotten";
  EXPECT_TRUE(pool->Find(Key(2)));
}

TEST(KvPagePoolTest, TheFirstPageOfAKeyAndTheFirstKeyOfAPageStay) {
  const auto pool = PoolOf(2);
  const KvPage first = pool->Take();
  const KvPage second = pool->Take();
  pool->Publish(first, Key(1));
  pool->Publish(first, Key(2));
  pool->Publish(second, Key(1));
  EXPECT_EQ(pool->Find(Key(1)).data(), first.data());
  EXPECT_FALSE(pool->Find(Key(2)));
  EXPECT_TRUE(second.is_writable());
}

TEST(KvPagePoolTest, AnUnpublishedPageIsNotFoundAndMayBeWritten) {
  const auto pool = PoolOf(1);
  const KvPage page = pool->Take();
  pool->Publish(page, Key(1));
  pool->Unpublish(page);
  EXPECT_TRUE(page.is_writable());
  EXPECT_FALSE(pool->Find(Key(1)));
  pool->Publish(page, Key(3));
  EXPECT_TRUE(pool->Find(Key(3)));
}

TEST(KvPagePoolDeathTest, APageThatOthersReadCannotBeUnpublished) {
  const auto pool = PoolOf(1);
  const KvPage page = pool->Take();
  pool->Publish(page, Key(1));
  const KvPage again = pool->Find(Key(1));
  EXPECT_DEATH(pool->Unpublish(page), "a page that others read is to be written");
}

#ifndef NDEBUG
TEST(KvPagePoolTest, APageIsNanWhenItIsTakenAndAfterItIsGivenBack) {
  const auto pool = PoolOf(1);
  const size_t floats = pool->page_bytes() / sizeof(float);
  const auto is_nan = [&](const float* data) {
    return std::all_of(data, data + floats, [](float value) { return std::isnan(value); });
  };
  float* place = nullptr;
  {
    const KvPage page = pool->Take();
    place = page.data();
    EXPECT_TRUE(is_nan(place));
    std::fill_n(place, floats, 1.0f);
  }
  EXPECT_TRUE(is_nan(place));
  {
    const KvPage page = pool->Take();
    std::fill_n(place, floats, 1.0f);
    pool->Publish(page, Key(1));
  }
  EXPECT_EQ(place[0], 1.0f) << "the page is published and may be found again";
  const KvPage page = pool->Take();
  EXPECT_TRUE(is_nan(place)) << "forgotten";
}
#endif

// Holds for any order of operations: every page is leased or free, a key leads only to the page
// that was published under it, and Take never returns a leased page.
TEST(KvPagePoolTest, PagesAreConservedInEveryOrderOfOperations) {
  constexpr size_t kNumPages = 7;
  constexpr uint32_t kNumNames = 12;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const auto pool = PoolOf(kNumPages);
    std::mt19937 random(seed);
    struct Held {
      KvPage page;
      std::optional<uint32_t> name;
    };
    std::vector<Held> held;
    std::map<uint32_t, float> contents;  // contents of the page that was published under a name
    for (int step = 0; step < 300; ++step) {
      const size_t pick = held.empty() ? 0 : random() % held.size();
      const auto name = static_cast<uint32_t>(random() % kNumNames);
      switch (random() % 6) {
        case 0:
        case 1: {
          const bool was_free = pool->num_free() > 0;
          KvPage page = pool->Take();
          ASSERT_EQ(static_cast<bool>(page), was_free);
          if (!page) break;
          ASSERT_TRUE(page.is_writable());
          for (const Held& other : held) ASSERT_NE(other.page.data(), page.data());
          page.data()[0] = static_cast<float>(step + 1);
          held.push_back({std::move(page), std::nullopt});
          break;
        }
        case 2:
          if (!held.empty()) held.erase(held.begin() + static_cast<ptrdiff_t>(pick));
          break;
        case 3: {
          if (held.empty() || !held[pick].page.is_writable()) break;
          const KvPage taken = pool->Find(Key(name));
          pool->Publish(held[pick].page, Key(name));
          ASSERT_EQ(held[pick].page.is_writable(), static_cast<bool>(taken));
          if (taken) break;
          held[pick].name = name;
          contents[name] = held[pick].page.data()[0];
          break;
        }
        case 4: {
          KvPage page = pool->Find(Key(name));
          const bool is_held = std::any_of(held.begin(), held.end(),
                                           [&](const Held& other) { return other.name == name; });
          ASSERT_TRUE(page || !is_held);
          if (!page) break;
          ASSERT_EQ(page.data()[0], contents.at(name));
          held.push_back({std::move(page), name});
          break;
        }
        case 5: {
          if (held.empty() || held[pick].page.is_shared()) break;
          pool->Unpublish(held[pick].page);
          held[pick].name.reset();
          ASSERT_TRUE(held[pick].page.is_writable());
          held[pick].page.data()[0] = static_cast<float>(-step - 1);
          break;
        }
      }
      std::set<const float*> leased;
      for (const Held& one : held) leased.insert(one.page.data());
      ASSERT_EQ(leased.size() + pool->num_free(), kNumPages) << "seed " << seed;
      ASSERT_LE(pool->num_published(), kNumPages);
    }
    held.clear();
    ASSERT_EQ(pool->num_free(), kNumPages);
  }
}

}  // namespace
}  // namespace tandem::kv_page_pool_test
