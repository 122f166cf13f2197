// Tests which rows a drafter that guesses step by step asks its device for. The device is a double:
// it remembers what it was asked, and guesses by arithmetic.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "common/model/heads/step_drafter.h"
#include "common/model/kv/kv_page_pool.h"

namespace tandem::step_drafter_test {
namespace {

// What the double has seen.
struct Seen {
  size_t num_passes = 0;
  size_t most_rows = 0;
  size_t most_guesses = 0;
  size_t passes_until_failure = SIZE_MAX;
};

// A guess is a number that follows from the path.
class DoubleOfDevice final : public StepDevice {
 public:
  explicit DoubleOfDevice(Seen* seen) : seen_(*seen), kept_(kMaxGuesses, -1) {}

  uint64_t weight_bytes() const override { return 0; }
  absl::Status Check() const override { return absl::OkStatus(); }
  absl::Status ClearRowZero(KvCache&) override { return absl::OkStatus(); }

  absl::Status Run(const StepPass& pass) override {
    if (seen_.num_passes++ == seen_.passes_until_failure) return absl::InternalError("lost");
    seen_.most_rows = std::max(seen_.most_rows, pass.rows.size());
    EXPECT_LE(pass.rows.size(), kMaxRows);
    size_t num_rows = 0;
    for (const StepPass::Sequence& sequence : pass.sequences) {
      num_rows += sequence.rows;
      const size_t end = sequence.length + sequence.first_row + sequence.rows;
      EXPECT_LE(end, sequence.cache->num_pages() * kPageRows) << "the rows have room";
    }
    EXPECT_EQ(num_rows, pass.rows.size());
    std::set<int32_t> kept_now;
    for (const StepPass::Row& row : pass.rows) {
      EXPECT_EQ(row.guess >= 0, pass.rows.front().guess >= 0);
      if (row.kept_as < 0) continue;
      EXPECT_LT(static_cast<size_t>(row.kept_as), kMaxGuesses);
      EXPECT_TRUE(kept_now.insert(row.kept_as).second);
      seen_.most_guesses = std::max(seen_.most_guesses, static_cast<size_t>(row.kept_as) + 1);
      const int64_t before = row.guess < 0 ? 0 : kept_[static_cast<size_t>(row.guess)];
      kept_[static_cast<size_t>(row.kept_as)] = (before * 31 + row.token_id) % 997;
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<std::vector<Guess>>> LookAhead(std::span<const int32_t> guesses,
                                                            int32_t count) override {
    std::vector<std::vector<Guess>> found;
    for (const int32_t guess : guesses) {
      const int64_t value = kept_[static_cast<size_t>(guess)];
      EXPECT_GE(value, 0) << "the guess was kept";
      std::vector<Guess>& tokens = found.emplace_back();
      for (int32_t i = 0; i < count; ++i) {
        tokens.push_back({static_cast<int32_t>((value + i * 7) % 500), 0.12f});
      }
    }
    return found;
  }

 private:
  Seen& seen_;
  std::vector<int64_t> kept_;
};

class StepDrafterTest : public ::testing::Test {
 protected:
  // Caches with texts of one to 50 tokens.
  void MakeTexts(size_t count) {
    KvShape shape;
    shape.num_layers = 1;
    shape.num_kv_heads = 1;
    shape.head_size = 2;
    pages_ = *KvPagePool::Create(shape, uint64_t{1} << 24);
    for (size_t i = 0; i < count; ++i) {
      texts_.emplace_back(1 + i % 50, static_cast<int32_t>(i));
      caches_.push_back(std::make_unique<KvCache>(pages_.get(), 256));
      ASSERT_TRUE(caches_[i]->Reserve(texts_[i].size()).ok());
      caches_[i]->Grow(texts_[i].size());
    }
  }
  GuessOrder Order(size_t i) {
    GuessOrder order;
    order.text = {caches_[i].get(), texts_[i]};
    order.next_token_id = static_cast<int32_t>(i);
    order.limits = {.depth = 8, .nodes = 32};
    return order;
  }

  static StepTraits Traits() {
    StepTraits traits;
    traits.name = "double";
    traits.keeps_rows = true;
    traits.step_cost = 1e-9;
    return traits;
  }

  std::unique_ptr<KvPagePool> pages_;
  std::vector<std::vector<int32_t>> texts_;
  std::vector<std::unique_ptr<KvCache>> caches_;
  Seen seen_;
  StepDrafter drafter_{std::make_unique<DoubleOfDevice>(&seen_), Traits()};
};

TEST_F(StepDrafterTest, ManyOrdersAreComputedInPartsAndGetTheTreesThatTheyGetAlone) {
  constexpr size_t kOrders = 70;
  constexpr size_t kRowsOfOrder = 1 + 7 * 8;
  static_assert(kOrders * kRowsOfOrder > StepDevice::kMaxGuesses);
  static_assert(kOrders * 8 > StepDevice::kMaxRows, "a level takes several passes");
  MakeTexts(kOrders);
  std::vector<GuessOrder> orders;
  for (size_t i = 0; i < kOrders; ++i) orders.push_back(Order(i));
  ASSERT_TRUE(drafter_.Propose(orders).ok());
  EXPECT_GT(seen_.most_rows, 270u) << "orders are computed together";
  EXPECT_GT(seen_.most_guesses, StepDevice::kMaxGuesses - kRowsOfOrder);
  for (size_t i = 0; i < kOrders; ++i) {
    GuessOrder alone = Order(i);
    ASSERT_TRUE(drafter_.Propose({&alone, 1}).ok());
    EXPECT_EQ(orders[i].tree.token_ids.size(), 32u) << i;
    EXPECT_EQ(orders[i].tree.token_ids, alone.tree.token_ids) << i;
    EXPECT_EQ(orders[i].tree.parents, alone.tree.parents) << i;
    EXPECT_EQ(caches_[i]->length(), texts_[i].size());
  }
}

TEST_F(StepDrafterTest, AFailureGivesTheRowsBack) {
  MakeTexts(3);
  const size_t free_before = pages_->num_free();
  for (size_t passes = 0; passes < 5; ++passes) {
    seen_ = {.passes_until_failure = passes};
    std::vector<GuessOrder> orders = {Order(0), Order(1), Order(2)};
    EXPECT_EQ(drafter_.Propose(orders).code(), absl::StatusCode::kInternal) << passes;
    EXPECT_EQ(pages_->num_free(), free_before) << passes;
    for (const GuessOrder& order : orders) EXPECT_TRUE(order.tree.token_ids.empty());
  }
}

}  // namespace
}  // namespace tandem::step_drafter_test
