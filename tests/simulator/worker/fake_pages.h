// A worker's pool of KV pages with its prefix cache, without keys and values. A row is the hash of
// the tokens from which it was computed. As in KvPagePool, a row also keeps a feature of the target
// and a row of the heads' own layer, and each page has marks that say what its rows have
// (docs/adr/0029-rows-of-eagle-in-the-targets-pages.md). What lies on a page stays there when the
// page is given back, so a mark that is wrong is seen.
#ifndef TANDEM_TESTS_SIMULATOR_WORKER_FAKE_PAGES_H_
#define TANDEM_TESTS_SIMULATOR_WORKER_FAKE_PAGES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulator/scenario/planted_bug.h"

namespace tandem::simulator {

// What a pass of the target keeps of a row for the heads.
struct FakeFeature {
  uint32_t states = 0;  // which states of the target (FakeHeads::states); 0: none
  uint64_t row = 0;     // the row whose states they are

  bool operator==(const FakeFeature&) const = default;
};
// A row of the heads' own layer. It comes from a token and the feature of the row before.
struct FakeHeadsRow {
  uint64_t heads = 0;  // number of the heads that computed it; 0: none did
  FakeFeature before;
  uint64_t row = 0;  // the target's row of the same token

  bool operator==(const FakeHeadsRow&) const = default;
};

class FakePages {
 public:
  FakePages(uint32_t page_tokens, uint32_t num_pages, PlantedBug bug)
      : page_tokens_(page_tokens), bug_(bug) {
    pages_.resize(num_pages);
    for (Page& page : pages_) {
      page.rows.resize(page_tokens);
      page.features.resize(page_tokens);
      page.heads_rows.resize(page_tokens);
    }
  }

  uint32_t page_tokens() const { return page_tokens_; }
  uint32_t num_pages() const { return static_cast<uint32_t>(pages_.size()); }
  // Returns the number of pages that no slot holds. Pages that only the prefix cache holds are
  // free.
  uint32_t num_free() const {
    uint32_t count = 0;
    for (const Page& page : pages_) count += page.references == 0 ? 1 : 0;
    return count;
  }
  uint32_t PagesOf(size_t rows) const {
    return static_cast<uint32_t>((rows + page_tokens_ - 1) / page_tokens_);
  }

  // Takes a blank page, or else the page that the cache used least recently.
  // PRECOND: num_free() > 0.
  uint32_t Take() {
    uint32_t best = 0;
    for (uint32_t id = 0; id < pages_.size(); ++id) {
      if (pages_[id].references > 0) continue;
      const bool is_first = pages_[best].references > 0;
      if (is_first || Age(id) < Age(best)) best = id;
    }
    Withdraw(best);
    if (bug_ != PlantedBug::kTakenPageKeepsMark) pages_[best].heads_rows_of = 0;
    pages_[best].features_of = features_version_;
    ++pages_[best].references;
    return best;
  }
  void Share(uint32_t id) { ++pages_[id].references; }
  void Drop(uint32_t id) {
    if (pages_[id].references > 0) --pages_[id].references;
    pages_[id].used_at = ++clock_;
  }
  uint32_t references(uint32_t id) const { return pages_[id].references; }
  const std::optional<std::pair<std::string, uint64_t>>& key(uint32_t id) const {
    return pages_[id].key;
  }
  std::vector<uint64_t>& rows(uint32_t id) { return pages_[id].rows; }
  const std::vector<uint64_t>& rows(uint32_t id) const { return pages_[id].rows; }

  // ---- what the heads need of a row

  std::vector<FakeFeature>& features(uint32_t id) { return pages_[id].features; }
  const std::vector<FakeFeature>& features(uint32_t id) const { return pages_[id].features; }
  std::vector<FakeHeadsRow>& heads_rows(uint32_t id) { return pages_[id].heads_rows; }
  const std::vector<FakeHeadsRow>& heads_rows(uint32_t id) const { return pages_[id].heads_rows; }
  // The page's marks: whether all its rows have what the heads that there are computed, and whether
  // the features of all its rows are those that these heads read.
  bool has_heads_rows(uint32_t id) const { return pages_[id].heads_rows_of == heads_version_; }
  void SetHeadsRows(uint32_t id, bool has) { pages_[id].heads_rows_of = has ? heads_version_ : 0; }
  bool has_features(uint32_t id) const { return pages_[id].features_of == features_version_; }
  // Copies all rows of a page.
  void Copy(uint32_t from, uint32_t to) {
    pages_[to].rows = pages_[from].rows;
    pages_[to].features = pages_[from].features;
    pages_[to].heads_rows = pages_[from].heads_rows;
    pages_[to].features_of = pages_[from].features_of;
  }

  // The heads were replaced: no page has rows of theirs.
  void ForgetHeadsRows() { ++heads_version_; }
  uint64_t heads_version() const { return heads_version_; }
  // The heads read other states: rows of before lack them, and nobody finds their pages.
  void ForgetFeatures() {
    ++features_version_;
    for (Page& page : pages_) page.key.reset();
    cache_.clear();
  }

  // Lets others share a full page whose rows have their features. Its key is the tenant's salt and
  // the hash of all tokens up to its end.
  void Publish(uint32_t id, const std::string& salt, uint64_t prefix_hash) {
    if (!has_features(id)) return;
    if (bug_ == PlantedBug::kPageLacksFeature) SetHeadsRows(id, true);
    if (cache_.emplace(std::make_pair(salt, prefix_hash), id).second) {
      pages_[id].key = {salt, prefix_hash};
    }
  }
  // Ends the sharing of a page that is about to be written.
  void Withdraw(uint32_t id) {
    if (!pages_[id].key.has_value()) return;
    cache_.erase(*pages_[id].key);
    pages_[id].key.reset();
  }
  std::optional<uint32_t> Find(const std::string& salt, uint64_t prefix_hash) const {
    const auto found = cache_.find({salt, prefix_hash});
    if (found == cache_.end()) return std::nullopt;
    return found->second;
  }
  const std::map<std::pair<std::string, uint64_t>, uint32_t>& cache() const { return cache_; }

 private:
  struct Page {
    uint32_t references = 0;
    std::vector<uint64_t> rows;  // hash of the prefix that ends with each row
    std::optional<std::pair<std::string, uint64_t>> key;
    uint64_t used_at = 0;
    std::vector<FakeFeature> features;
    std::vector<FakeHeadsRow> heads_rows;
    uint64_t heads_rows_of = 0;  // version of the heads that computed all rows; 0: none did
    uint64_t features_of = 1;    // the oldest version of the features of its rows
  };
  uint64_t Age(uint32_t id) const {
    return pages_[id].key.has_value() ? 1 + pages_[id].used_at : 0;
  }

  uint32_t page_tokens_;
  PlantedBug bug_;
  std::vector<Page> pages_;
  std::map<std::pair<std::string, uint64_t>, uint32_t> cache_;
  uint64_t clock_ = 0;
  uint64_t heads_version_ = 1;
  uint64_t features_version_ = 1;
};

}  // namespace tandem::simulator

#endif  // TANDEM_TESTS_SIMULATOR_WORKER_FAKE_PAGES_H_
