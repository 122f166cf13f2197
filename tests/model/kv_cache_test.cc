#include "common/model/kv/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention.h"

namespace tandem::kv_cache_test {
namespace {

using ::testing::HasSubstr;

constexpr size_t kHeadSize = 4;
constexpr size_t kNumPages = 4;

ModelDescription Config() {
  ModelDescription config;
  config.num_layers = 2;
  config.attention.num_kv_heads = 1;
  config.attention.head_size = kHeadSize;
  return config;
}

class KvCacheTest : public ::testing::Test {
 protected:
  // Appends rows whose values name their position and their writer.
  static void Append(KvCache& cache, size_t rows, float writer) {
    ASSERT_TRUE(cache.Reserve(rows).ok());
    for (size_t i = 0; i < rows; ++i) {
      const size_t row = cache.length() + i;
      for (size_t layer = 0; layer < 2; ++layer) {
        const std::vector<float> numbers(kHeadSize, Number(row, layer, writer));
        StoreKv({.kv = cache.Layer(layer),
                 .first_row = row,
                 .rows = 1,
                 .keys = numbers.data(),
                 .keys_stride = kHeadSize,
                 .values = numbers.data(),
                 .values_stride = kHeadSize});
      }
    }
    cache.Grow(rows);
  }
  static float Number(size_t row, size_t layer, float writer) {
    return static_cast<float>(row * 2 + layer) + writer * 4096;
  }
  static void ExpectRows(const KvCache& cache, size_t begin, size_t end, float writer) {
    for (size_t row = begin; row < end; ++row) {
      for (size_t layer = 0; layer < 2; ++layer) {
        const KvLayer kv = cache.Layer(layer);
        const float want = Number(row, layer, writer);
        ASSERT_EQ(kv.Keys(0, row / kPageRows)[row % kPageRows], want) << row;
        ASSERT_EQ(kv.Values(0, row / kPageRows)[row % kPageRows * kHeadSize + 1], want) << row;
      }
    }
  }
  std::vector<KvPage> Find(size_t num_pages) {
    std::vector<KvPage> found;
    for (uint8_t page = 0; page < num_pages; ++page) found.push_back(pool_->Find({page}));
    return found;
  }
  static void Publish(KvCache& cache, size_t num_pages) {
    for (uint8_t page = 0; page < num_pages; ++page) cache.Publish(page, {page});
  }

  std::unique_ptr<KvPagePool> pool_ =
      *KvPagePool::Create(Config(), kNumPages* HostKvMemory::PageBytes(Config()));
};

TEST_F(KvCacheTest, GrowsPageByPageAndTruncatesToWholePages) {
  KvCache cache(pool_.get(), 256);
  EXPECT_EQ(cache.num_pages(), 0u);
  EXPECT_EQ(pool_->num_free(), 4u);
  Append(cache, 64, 0);
  EXPECT_EQ(pool_->num_free(), 3u);
  Append(cache, 1, 0);
  EXPECT_EQ(pool_->num_free(), 2u);
  Append(cache, 128, 0);
  EXPECT_EQ(pool_->num_free(), 0u);
  ExpectRows(cache, 0, 193, 0);
  cache.TruncateTo(65);
  EXPECT_EQ(pool_->num_free(), 2u);
  cache.TruncateTo(64);
  EXPECT_EQ(pool_->num_free(), 3u);
  ExpectRows(cache, 0, 64, 0);
  cache.TruncateTo(0);
  EXPECT_EQ(pool_->num_free(), 4u);
}

TEST_F(KvCacheTest, UnusedReservedPagesAreGivenBack) {
  KvCache cache(pool_.get(), 256);
  Append(cache, 60, 0);
  ASSERT_TRUE(cache.Reserve(10).ok());
  ASSERT_TRUE(cache.Reserve(10).ok());
  EXPECT_EQ(pool_->num_free(), 2u);
  cache.TruncateTo(cache.length());
  EXPECT_EQ(pool_->num_free(), 3u);
  ExpectRows(cache, 0, 60, 0);
}

TEST_F(KvCacheTest, ADestroyedCacheGivesItsPagesBack) {
  {
    KvCache cache(pool_.get(), 256);
    Append(cache, 200, 0);
    EXPECT_EQ(pool_->num_free(), 0u);
  }
  EXPECT_EQ(pool_->num_free(), 4u);
}

TEST_F(KvCacheTest, WithoutPagesNothingChanges) {
  KvCache other(pool_.get(), 256);
  Append(other, 65, 1);
  KvCache cache(pool_.get(), 256);
  Append(cache, 70, 0);
  const absl::Status status = cache.Reserve(59);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("1 pages wanted, 0 of 4 are free (--kv-cache-bytes)"));
  EXPECT_EQ(cache.length(), 70u);
  EXPECT_EQ(cache.num_pages(), 2u);
  ExpectRows(cache, 0, 70, 0);
  EXPECT_TRUE(cache.Reserve(58).ok()) << "the page it has is not full";
  // Pages that the rollback would give back count as free. If they are too few, nothing is given
  // back.
  EXPECT_EQ(cache.Extend(10, {}, 119).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(cache.length(), 70u);
  ExpectRows(cache, 0, 70, 0);
  EXPECT_TRUE(cache.Extend(10, {}, 118).ok());
  EXPECT_EQ(cache.length(), 10u);
  EXPECT_EQ(cache.num_pages(), 2u);
}

TEST_F(KvCacheTest, FoundPagesAreSharedAndOutliveTheirWriter) {
  auto writer = std::make_unique<KvCache>(pool_.get(), 256);
  Append(*writer, 130, 0);
  Publish(*writer, 2);
  KvCache reader(pool_.get(), 256);
  ASSERT_TRUE(reader.Extend(0, Find(2), 1).ok());
  EXPECT_EQ(reader.length(), 128u);
  EXPECT_EQ(pool_->num_free(), 0u) << "two shared, one of each";
  Append(reader, 10, 1);
  ExpectRows(*writer, 0, 130, 0);
  writer.reset();
  EXPECT_EQ(pool_->num_free(), 1u);
  ExpectRows(reader, 0, 128, 0);
  ExpectRows(reader, 128, 138, 1);
}

TEST_F(KvCacheTest, ASharedPageIsCopiedBeforeItIsWritten) {
  KvCache writer(pool_.get(), 256);
  Append(writer, 128, 0);
  Publish(writer, 2);
  KvCache reader(pool_.get(), 256);
  ASSERT_TRUE(reader.Extend(0, Find(2), 0).ok());
  EXPECT_EQ(pool_->num_free(), 2u);
  reader.TruncateTo(100);
  EXPECT_EQ(pool_->num_free(), 2u) << "the page is not copied too early";
  Append(reader, 20, 1);
  EXPECT_EQ(pool_->num_free(), 1u);
  ExpectRows(reader, 0, 100, 0);
  ExpectRows(reader, 100, 120, 1);
  ExpectRows(writer, 0, 128, 0);
  EXPECT_EQ(pool_->Find({1}).data(), writer.Layer(0).pages[1]);
}

TEST_F(KvCacheTest, PagesRememberThatTheyHoldRowsOfADrafter) {
  KvCache writer(pool_.get(), 256);
  Append(writer, 100, 1);
  EXPECT_EQ(writer.NumDrafterRows(), 0u);
  writer.SetDrafterRows(90);
  EXPECT_EQ(writer.NumDrafterRows(), 90u);
  Publish(writer, 1);
  KvCache reader(pool_.get(), 256);
  ASSERT_TRUE(reader.Extend(0, Find(1), 0).ok());
  EXPECT_EQ(reader.NumDrafterRows(), 64u);
  reader.TruncateTo(63);
  EXPECT_EQ(reader.NumDrafterRows(), 0u) << "the page is no longer whole";
  Append(reader, 1, 2);  // to a copy of the page
  EXPECT_EQ(reader.NumDrafterRows(), 0u);
  EXPECT_EQ(writer.NumDrafterRows(), 90u);
  // A page without other holders that is written anew.
  writer.TruncateTo(40);
  EXPECT_EQ(writer.NumDrafterRows(), 40u);
  Append(writer, 60, 3);
  EXPECT_EQ(writer.NumDrafterRows(), 40u);
  Publish(writer, 1);
  KvCache second(pool_.get(), 256);
  ASSERT_TRUE(second.Extend(0, Find(1), 0).ok());
  EXPECT_EQ(second.NumDrafterRows(), 0u);
}

TEST_F(KvCacheTest, RowsOfAFormerDrafterCountNoMore) {
  KvCache writer(pool_.get(), 256);
  Append(writer, 100, 1);
  writer.SetDrafterRows(90);
  Publish(writer, 1);
  pool_->ForgetDrafterRows();
  EXPECT_EQ(writer.NumDrafterRows(), 0u);
  KvCache reader(pool_.get(), 256);
  ASSERT_TRUE(reader.Extend(0, Find(1), 0).ok()) << "the model's rows are as they were";
  EXPECT_EQ(reader.NumDrafterRows(), 0u);
  EXPECT_TRUE(reader.has_features());
  writer.SetDrafterRows(70);  // fewer than the former drafter had
  EXPECT_EQ(writer.NumDrafterRows(), 70u);
  EXPECT_EQ(reader.NumDrafterRows(), 64u);
}

TEST_F(KvCacheTest, PagesThatLackFeaturesAreNotFound) {
  KvCache writer(pool_.get(), 256);
  Append(writer, 70, 1);
  Publish(writer, 1);
  {
    KvCache gone(pool_.get(), 256);
    Append(gone, kPageRows, 2);
    gone.Publish(0, {7});
  }
  EXPECT_EQ(pool_->num_cached(), 1u);
  pool_->ForgetFeatures();
  EXPECT_EQ(pool_->num_published(), 0u);
  EXPECT_EQ(pool_->num_cached(), 0u);
  EXPECT_FALSE(pool_->Find({1}));
  EXPECT_FALSE(pool_->Find({7}));
  EXPECT_FALSE(writer.has_features());
  Append(writer, 2 * kPageRows - 70, 1);  // the second page has rows of before and of now
  Publish(writer, 2);
  EXPECT_EQ(pool_->num_published(), 0u);
  Append(writer, kPageRows, 1);
  Publish(writer, 3);
  EXPECT_EQ(pool_->num_published(), 1u) << "the third page has rows of now alone";
  EXPECT_FALSE(writer.has_features());
  writer.TruncateTo(0);
  Append(writer, kPageRows, 1);
  EXPECT_TRUE(writer.has_features()) << "all rows were written anew";
  ExpectRows(writer, 0, kPageRows, 1);
}

TEST_F(KvCacheTest, ACopyOfAPageLacksWhatThePageLacks) {
  KvCache writer(pool_.get(), 256);
  Append(writer, kPageRows, 1);
  Publish(writer, 1);
  KvCache reader(pool_.get(), 256);
  ASSERT_TRUE(reader.Extend(0, Find(1), 0).ok());
  pool_->ForgetFeatures();
  reader.TruncateTo(10);
  Append(reader, 1, 2);  // to a copy
  EXPECT_FALSE(reader.has_features());
}

TEST_F(KvCacheTest, RoomTakesAtMostOnePageThatCouldBeFound) {
  KvCache cache(pool_.get(), 200);
  Append(cache, 60, 1);
  EXPECT_EQ(cache.RoomFor(10), 10u);
  EXPECT_EQ(cache.RoomFor(1000), 140u) << "the capacity";
  {
    KvCache other(pool_.get(), 256);
    Append(other, 2 * kPageRows, 2);
    EXPECT_EQ(cache.RoomFor(100), 68u) << "one page is left";
    Append(other, kPageRows, 2);
    EXPECT_EQ(cache.RoomFor(100), 4u);
    Publish(other, 3);
  }
  EXPECT_EQ(pool_->num_free(), 3u);
  EXPECT_EQ(cache.RoomFor(140), 68u) << "all three can be found";
}

TEST_F(KvCacheTest, FeaturesGoWithTheirRows) {
  KvShape shape(Config());
  shape.feature_floats = 3;
  auto pool = *KvPagePool::Create(shape, kNumPages * HostKvMemory::PageBytes(shape));
  KvCache cache(pool.get(), 256);
  const auto write = [&](size_t row, float value) { std::fill_n(cache.Feature(row), 3, value); };
  ASSERT_TRUE(cache.Reserve(70).ok());
  for (size_t row = 0; row < 70; ++row) write(row, static_cast<float>(row));
  cache.Grow(70);
  ASSERT_TRUE(cache.KeepPath(62, std::vector<int32_t>{1, 4}).ok());
  for (size_t row = 0; row < 62; ++row) ASSERT_EQ(cache.Feature(row)[2], row);
  EXPECT_EQ(cache.Feature(62)[0], 63);
  EXPECT_EQ(cache.Feature(63)[2], 66);
  cache.Publish(0, {1});
  KvCache other(pool.get(), 256);
  std::vector<KvPage> found;
  found.push_back(pool->Find({1}));
  ASSERT_TRUE(other.Extend(0, std::move(found), 0).ok());
  other.TruncateTo(10);
  ASSERT_TRUE(other.Reserve(1).ok());  // to a copy
  EXPECT_NE(other.Feature(9), cache.Feature(9));
  EXPECT_EQ(other.Feature(9)[1], 9);
}

TEST_F(KvCacheTest, ACopyNeedsAPageAndWithoutOneNothingChanges) {
  KvCache writer(pool_.get(), 256);
  Append(writer, 128, 0);
  Publish(writer, 2);
  KvCache other(pool_.get(), 256);
  Append(other, 128, 2);
  KvCache reader(pool_.get(), 256);
  ASSERT_TRUE(reader.Extend(0, Find(2), 0).ok());
  EXPECT_EQ(reader.Extend(100, {}, 1).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(reader.length(), 128u);
  ExpectRows(reader, 0, 128, 0);
  EXPECT_TRUE(reader.Extend(100, {}, 0).ok()) << "a rollback alone needs no page";
  other.TruncateTo(64);
  Append(reader, 1, 1);
  ExpectRows(writer, 0, 128, 0);
}

TEST_F(KvCacheTest, AWriteByTheOnlyHolderUnpublishesThePage) {
  KvCache cache(pool_.get(), 256);
  Append(cache, 128, 0);
  Publish(cache, 2);
  cache.TruncateTo(100);
  EXPECT_TRUE(pool_->Find({1})) << "its rows are still there";
  Append(cache, 1, 1);
  EXPECT_FALSE(pool_->Find({1}));
  EXPECT_TRUE(pool_->Find({0}));
  EXPECT_EQ(pool_->num_free(), 2u);
  ExpectRows(cache, 0, 100, 0);
  ExpectRows(cache, 100, 101, 1);
}

TEST_F(KvCacheTest, TheEndOfASequenceIsForgottenBeforeItsBeginning) {
  {
    KvCache cache(pool_.get(), 256);
    Append(cache, 256, 0);
    Publish(cache, 4);
  }
  KvCache other(pool_.get(), 256);
  Append(other, 128, 1);
  EXPECT_TRUE(pool_->Find({0}));
  EXPECT_TRUE(pool_->Find({1}));
  EXPECT_FALSE(pool_->Find({2}));
  EXPECT_FALSE(pool_->Find({3}));
}

TEST_F(KvCacheTest, TruncatingToMoreRowsThanThereAreDies) {
  KvCache cache(pool_.get(), 256);
  Append(cache, 3, 0);
  EXPECT_DEATH(cache.TruncateTo(4), "KV cache: TruncateTo 4, limit 3");
}

#ifndef NDEBUG
TEST_F(KvCacheTest, RowsThatAreGivenBackBecomeNan) {
  KvCache cache(pool_.get(), 256);
  Append(cache, 70, 0);
  cache.TruncateTo(66);
  ExpectRows(cache, 0, 66, 0);
  for (size_t row = 66; row < 70; ++row) {
    EXPECT_TRUE(std::isnan(cache.Layer(1).Keys(0, 1)[row - 64]));
    EXPECT_TRUE(std::isnan(cache.Layer(1).Values(0, 1)[(row - 64) * kHeadSize]));
  }
}
#endif

// Caches grow, roll back, publish and find pages in any order.
class KvCacheStoryTest : public KvCacheTest {
 protected:
  struct Story {
    std::unique_ptr<KvCache> cache;
    std::vector<float> writers;  // writers of its rows
  };

  void Grow(Story& story, size_t rows, float writer) {
    const size_t free_before = pool_->num_free();
    if (!story.cache->Reserve(rows).ok()) {
      ASSERT_EQ(pool_->num_free(), free_before);
      return;
    }
    Append(*story.cache, rows, writer);
    story.writers.insert(story.writers.end(), rows, writer);
  }

  void Publish(Story& story, size_t page, const KvPageKey& key) {
    if ((page + 1) * kPageRows > story.writers.size()) return;
    story.cache->Publish(page, key);
    published_.emplace_back(
        std::vector<float>(story.writers.begin(),
                           story.writers.begin() + static_cast<ptrdiff_t>((page + 1) * kPageRows)),
        key);
  }

  // Continues the story with a published page, if the page continues it.
  void Extend(Story& story, size_t number) {
    const auto& [writers, key] = published_[number];
    const size_t begin = writers.size() - kPageRows;
    if (begin > story.writers.size() ||
        !std::equal(writers.begin(), writers.end() - kPageRows, story.writers.begin())) {
      return;
    }
    std::vector<KvPage> found;
    found.push_back(pool_->Find(key));
    if (!found.front()) return;
    ASSERT_TRUE(story.cache->Extend(begin, std::move(found), 0).ok());
    story.writers = writers;
  }

  // Adds rows of a tree, and keeps some of them.
  void KeepSome(Story& story, float writer, std::mt19937& random) {
    const size_t begin = story.writers.size();
    Grow(story, 1 + random() % 10, writer);
    Grow(story, 1 + random() % 10, writer + 50);
    std::vector<int32_t> kept;
    std::vector<float> writers(story.writers.begin(),
                               story.writers.begin() + static_cast<ptrdiff_t>(begin));
    for (size_t row = begin; row < story.writers.size(); ++row) {
      if (random() % 2 == 0) continue;
      // Rows name the position at which they were written.
      const auto moved = static_cast<float>(row - writers.size());
      kept.push_back(static_cast<int32_t>(row - begin));
      writers.push_back(story.writers[row] + moved * 2 / 4096);
    }
    const size_t free_before = pool_->num_free();
    const absl::Status status = story.cache->KeepPath(begin, kept);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_GE(pool_->num_free(), free_before);
    story.writers = writers;
  }

  // Every cache holds the rows of its history, and every page is leased or free.
  void ExpectConserved(const std::vector<Story>& stories) {
    size_t most = 0;
    std::vector<const float*> leased;
    for (const Story& one : stories) {
      ASSERT_EQ(one.cache->length(), one.writers.size());
      for (size_t row = 0; row < one.writers.size(); ++row) {
        ExpectRows(*one.cache, row, row + 1, one.writers[row]);
      }
      most += one.cache->num_pages();
      for (size_t page = 0; page < one.cache->num_pages(); ++page) {
        leased.push_back(one.cache->Layer(0).pages[page]);
      }
    }
    std::sort(leased.begin(), leased.end());
    leased.erase(std::unique(leased.begin(), leased.end()), leased.end());
    ASSERT_EQ(leased.size() + pool_->num_free(), kNumPages);
    ASSERT_LE(leased.size(), most);
  }

  std::vector<std::pair<std::vector<float>, KvPageKey>> published_;  // rows up to the page's end
};

TEST_F(KvCacheStoryTest, EveryHistoryHoldsItsRowsAndConservesPages) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    std::vector<Story> stories(3);
    for (Story& story : stories) story.cache = std::make_unique<KvCache>(pool_.get(), 256);
    published_.clear();
    uint8_t next_key = 0;
    for (int step = 0; step < 60; ++step) {
      Story& story = stories[random() % stories.size()];
      const size_t length = story.writers.size();
      switch (random() % 5) {
        case 0:
          Grow(story, std::min<size_t>(1 + random() % 90, 256 - length),
               static_cast<float>(1 + step % 50));
          break;
        case 1:
          story.writers.resize(length - random() % (length + 1));
          story.cache->TruncateTo(story.writers.size());
          break;
        case 2:
          Publish(story, random() % 4, {next_key++, static_cast<uint8_t>(seed)});
          break;
        case 3:
          if (!published_.empty()) Extend(story, random() % published_.size());
          break;
        case 4:
          if (length + 20 <= 256) KeepSome(story, static_cast<float>(1 + step % 50), random);
          break;
      }
      ExpectConserved(stories);
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << " step " << step;
    }
  }
}

}  // namespace
}  // namespace tandem::kv_cache_test
