// A row of logits has the same bits on every path and in every batch (invariant 3 of the
// architecture).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/model/language_model.h"
#include "tests/model/model_under_test.h"

namespace tandem {
namespace {

using testing::ModelUnderTest;
using Row = std::vector<float>;
using Rows = std::vector<Row>;

class PathInvarianceTest : public ::testing::TestWithParam<testing::PathSetting> {
 protected:
  void SetUp() override {
    if (const std::string why = testing::WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
    loaded_ = Load(GetParam().num_threads);
    model_ = loaded_.model.get();
    pages_ = loaded_.pages.get();
    ids_ = SomeTokens(0);
  }

  // Loads the model with pages for four caches.
  static ModelUnderTest Load(int num_threads) {
    auto loaded = testing::LoadModelUnderTest(testing::SourceDir() / GetParam().folder, num_threads,
                                              4, GetParam().num_tokens);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return std::move(loaded).value();
  }

  std::vector<int32_t> SomeTokens(size_t seed) const {
    std::vector<int32_t> ids(GetParam().num_tokens);
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int32_t>((i * i * 7919 + (seed + 3) * (i + 1) * 104729) %
                                    model_->description().vocabulary_size);
    }
    return ids;
  }

  static std::unique_ptr<KvCache> NewCache(KvPagePool& pages) {
    return std::make_unique<KvCache>(&pages, GetParam().num_tokens);
  }
  std::unique_ptr<KvCache> NewCache() const { return NewCache(*pages_); }

  Rows Forward(LanguageModel& model, std::vector<ForwardItem> items) const {
    const auto logits = model.Forward(items);
    EXPECT_TRUE(logits.ok()) << logits.status();
    Rows rows;
    for (size_t i = 0; i < logits->rows; ++i) {
      rows.emplace_back(logits->row(i), logits->row(i) + model.description().vocabulary_size);
    }
    return rows;
  }

  // Returns the item of ids[begin, end) with logits for the last `num_logits` of them, or for all.
  static ForwardItem Item(KvCache& cache, const std::vector<int32_t>& ids, size_t begin, size_t end,
                          size_t num_logits) {
    return {.cache = &cache,
            .token_ids = std::span(ids).subspan(begin, end - begin),
            .parents = {},
            .num_logits = num_logits};
  }

  // Computes the rows token by token. Every other path is compared with them.
  Rows Decode(LanguageModel& model, const std::vector<int32_t>& ids) const {
    const auto cache = NewCache();
    Rows rows;
    for (size_t i = 0; i < ids.size(); ++i) {
      rows.push_back(Forward(model, {Item(*cache, ids, i, i + 1, 1)}).at(0));
    }
    return rows;
  }

  static void ExpectSameBits(const Row& got, const Row& want, const std::string& what) {
    ASSERT_EQ(got.size(), want.size());
    ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0) << what;
  }

  ModelUnderTest loaded_;
  LanguageModel* model_ = nullptr;
  KvPagePool* pages_ = nullptr;
  std::vector<int32_t> ids_;
};

TEST_P(PathInvarianceTest, ChunkedPrefillEqualsDecodingOneByOne) {
  const Rows want = Decode(*model_, ids_);
  for (const size_t chunk :
       {size_t{2}, size_t{7}, size_t{16}, size_t{64}, size_t{65}, ids_.size()}) {
    const auto cache = NewCache();
    for (size_t begin = 0; begin < ids_.size(); begin += chunk) {
      const size_t end = std::min(ids_.size(), begin + chunk);
      const Rows got = Forward(*model_, {Item(*cache, ids_, begin, end, end - begin)});
      for (size_t i = begin; i < end; ++i) {
        ExpectSameBits(got.at(i - begin), want[i],
                       "chunk " + std::to_string(chunk) + " row " + std::to_string(i));
      }
    }
    EXPECT_EQ(cache->length(), ids_.size());
  }
}

TEST_P(PathInvarianceTest, RowsWithoutLogitsChangeNothing) {
  const Rows want = Decode(*model_, ids_);
  const auto cache = NewCache();
  const size_t half = ids_.size() / 2;
  EXPECT_TRUE(Forward(*model_, {Item(*cache, ids_, 0, half, 0)}).empty());
  const Rows got = Forward(*model_, {Item(*cache, ids_, half, ids_.size(), 3)});
  ASSERT_EQ(got.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    ExpectSameBits(got[i], want[ids_.size() - 3 + i], "row " + std::to_string(i));
  }
}

TEST_P(PathInvarianceTest, OtherSlotsOfABatchChangeNothing) {
  const std::vector<int32_t> others[] = {SomeTokens(1), SomeTokens(2)};
  const Rows want = Decode(*model_, ids_);
  const Rows want_other = Decode(*model_, others[0]);
  const auto cache = NewCache();
  const auto decoding = NewCache();
  const auto prefilling = NewCache();
  size_t decoded = 0;
  size_t prefilled = 0;
  // The middle slot has a verify block. One neighbor decodes, and the other one prefills in growing
  // chunks.
  for (size_t begin = 0, step = 1; begin < ids_.size(); begin += step, step = step % 6 + 1) {
    const size_t end = std::min(ids_.size(), begin + step);
    const size_t chunk = std::min(others[1].size() - prefilled, 5 + 3 * step);
    std::vector<ForwardItem> items = {Item(*decoding, others[0], decoded, decoded + 1, 1),
                                      Item(*cache, ids_, begin, end, end - begin)};
    if (chunk > 0) items.push_back(Item(*prefilling, others[1], prefilled, prefilled + chunk, 1));
    const Rows got = Forward(*model_, items);
    ExpectSameBits(got.at(0), want_other[decoded], "neighbor " + std::to_string(decoded));
    for (size_t i = begin; i < end; ++i) {
      ExpectSameBits(got.at(1 + i - begin), want[i], "row " + std::to_string(i));
    }
    ++decoded;
    prefilled += chunk;
  }
}

TEST_P(PathInvarianceTest, RolledBackRowsLeaveNoTrace) {
  const std::vector<int32_t> wrong = SomeTokens(4);
  const Rows want = Decode(*model_, ids_);
  const auto cache = NewCache();
  constexpr size_t kDraft = 5;
  for (size_t begin = 0; begin + kDraft <= ids_.size(); begin += 3) {
    Forward(*model_, {Item(*cache, wrong, begin, begin + kDraft, kDraft)});
    cache->TruncateTo(begin);
    // Three of these tokens stay.
    const Rows got = Forward(*model_, {Item(*cache, ids_, begin, begin + kDraft, kDraft)});
    for (size_t i = 0; i < kDraft; ++i) {
      ExpectSameBits(got.at(i), want[begin + i], "row " + std::to_string(begin + i));
    }
    cache->TruncateTo(begin + 3);
    EXPECT_EQ(cache->length(), begin + 3);
  }
}

TEST_P(PathInvarianceTest, ARowOfATreeEqualsTheChainOfItsPath) {
  //            0
  //        1       2
  //      3   4     5      and a second root, 6, with one child, 7
  const std::vector<int32_t> parents = {-1, 0, 0, 1, 1, 2, -1, 6};
  const std::vector<int32_t> tree = SomeTokens(5);
  for (const size_t prefix : {size_t{0}, size_t{5}, size_t{62}, size_t{64}, size_t{100}}) {
    const auto cache = NewCache();
    if (prefix > 0) Forward(*model_, {Item(*cache, ids_, 0, prefix, 0)});
    ForwardItem item = Item(*cache, tree, 0, parents.size(), parents.size());
    item.parents = parents;
    const Rows got = Forward(*model_, {item});
    EXPECT_EQ(cache->length(), prefix + parents.size());
    for (size_t row = 0; row < parents.size(); ++row) {
      std::vector<int32_t> path;
      for (auto i = static_cast<int32_t>(row); i >= 0; i = parents[i]) path.push_back(tree[i]);
      std::reverse(path.begin(), path.end());
      cache->TruncateTo(prefix);
      const Rows want = Forward(*model_, {Item(*cache, path, 0, path.size(), 1)});
      ExpectSameBits(got.at(row), want.at(0),
                     "prefix " + std::to_string(prefix) + " row " + std::to_string(row));
    }
  }
}

TEST_P(PathInvarianceTest, TheRowsOfAnAcceptedPathEqualThoseOfAChain) {
  const std::vector<int32_t> parents = {-1, -1, 1, 1, 3, -1};
  const std::vector<int32_t> kept = {1, 3, 4};
  const std::vector<int32_t> tree = SomeTokens(7);
  for (const size_t prefix : {size_t{1}, size_t{5}, size_t{60}, size_t{62}, size_t{64}}) {
    // The tree follows two rows of the same pass.
    const auto cache = NewCache();
    if (prefix > 0) Forward(*model_, {Item(*cache, ids_, 0, prefix, 0)});
    std::vector<int32_t> tokens(ids_.begin() + prefix, ids_.begin() + prefix + 2);
    std::vector<int32_t> path = tokens;
    tokens.insert(tokens.end(), tree.begin(), tree.begin() + parents.size());
    ForwardItem item = Item(*cache, tokens, 0, tokens.size(), parents.size() + 1);
    item.parents = parents;
    const Rows got = Forward(*model_, {item});
    ASSERT_TRUE(cache->KeepPath(prefix + 2, kept).ok());
    EXPECT_EQ(cache->length(), prefix + 2 + kept.size());

    const auto chain = NewCache();
    Forward(*model_, {Item(*chain, ids_, 0, prefix, 0)});
    for (const int32_t node : kept) path.push_back(tree[node]);
    const Rows want = Forward(*model_, {Item(*chain, path, 0, path.size(), kept.size() + 1)});
    ExpectSameBits(got.at(0), want.at(0), "the row before the tree");
    for (size_t i = 0; i < kept.size(); ++i) {
      ExpectSameBits(got.at(1 + static_cast<size_t>(kept[i])), want.at(1 + i),
                     "prefix " + std::to_string(prefix) + " node " + std::to_string(kept[i]));
    }
    // What follows sees the moved rows.
    const Rows after = Forward(*model_, {Item(*cache, ids_, 0, 4, 4)});
    const Rows after_chain = Forward(*model_, {Item(*chain, ids_, 0, 4, 4)});
    for (size_t i = 0; i < 4; ++i) {
      ExpectSameBits(after.at(i), after_chain.at(i), "after, prefix " + std::to_string(prefix));
    }
  }
}

TEST_P(PathInvarianceTest, TheNumberOfThreadsChangesNothing) {
  const ModelUnderTest other = Load(3 - GetParam().num_threads);
  const auto cache = NewCache();
  const auto other_cache = NewCache(*other.pages);
  const Rows got = Forward(*model_, {Item(*cache, ids_, 0, ids_.size(), ids_.size())});
  const Rows want = Forward(*other.model, {Item(*other_cache, ids_, 0, ids_.size(), ids_.size())});
  for (size_t i = 0; i < ids_.size(); ++i) {
    ExpectSameBits(got.at(i), want.at(i), "row " + std::to_string(i));
  }
}

TEST_P(PathInvarianceTest, RowsFoundInTheCacheEqualComputedRows) {
  const Rows want = Decode(*model_, ids_);
  const size_t num_pages = ids_.size() / kPageRows;
  const auto key = [](size_t page) { return KvPageKey{static_cast<uint8_t>(page)}; };
  {
    const auto first = NewCache();
    Forward(*model_, {Item(*first, ids_, 0, ids_.size(), 0)});
    for (size_t page = 0; page < num_pages; ++page) first->Publish(page, key(page));
  }
  // All full pages are found, all but one, or only one.
  for (const size_t found_pages : {num_pages, num_pages - 1, size_t{1}}) {
    const auto cache = NewCache();
    std::vector<KvPage> found;
    for (size_t page = 0; page < found_pages; ++page) found.push_back(pages_->Find(key(page)));
    ASSERT_TRUE(cache->Extend(0, std::move(found), 0).ok());
    const size_t begin = cache->length();
    ASSERT_EQ(begin, found_pages * kPageRows);
    const size_t rows = ids_.size() - begin;
    const Rows got = Forward(*model_, {Item(*cache, ids_, begin, ids_.size(), rows)});
    for (size_t i = 0; i < rows; ++i) {
      ExpectSameBits(got.at(i), want[begin + i], "row " + std::to_string(begin + i));
    }
  }
}

TEST_P(PathInvarianceTest, ASlotThatLeavesASharedPageChangesNothingForTheOtherSlot) {
  const std::vector<int32_t> others = SomeTokens(6);
  const Rows want = Decode(*model_, ids_);
  const size_t end = 2 * kPageRows;
  const auto cache = NewCache();
  Forward(*model_, {Item(*cache, ids_, 0, end, 0)});
  for (uint8_t page = 0; page < 2; ++page) cache->Publish(page, {page});
  const auto turning = NewCache();
  std::vector<KvPage> found;
  for (uint8_t page = 0; page < 2; ++page) found.push_back(pages_->Find({page}));
  ASSERT_TRUE(turning->Extend(0, std::move(found), 0).ok());
  turning->TruncateTo(kPageRows + 10);
  Forward(*model_, {Item(*turning, others, kPageRows + 10, end, 0)});
  // The slot turns back to the first tokens. The rows before the turn are still there.
  turning->TruncateTo(kPageRows + 10);
  const Rows back = Forward(*model_, {Item(*turning, ids_, kPageRows + 10, ids_.size(), 1)});
  ExpectSameBits(back.at(0), want.back(), "the slot that turned");
  const Rows got = Forward(*model_, {Item(*cache, ids_, end, ids_.size(), 1)});
  ExpectSameBits(got.at(0), want.back(), "the slot that did not turn");
}

INSTANTIATE_TEST_SUITE_P(Models, PathInvarianceTest, ::testing::ValuesIn(testing::PathSettings()),
                         [](const auto& setting) { return setting.param.name; });

}  // namespace
}  // namespace tandem
