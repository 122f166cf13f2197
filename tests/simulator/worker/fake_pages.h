// A worker's pool of KV pages with its prefix cache, without keys and values. A row is the hash of
// the tokens from which it was computed.
#ifndef TANDEM_TESTS_SIMULATOR_WORKER_FAKE_PAGES_H_
#define TANDEM_TESTS_SIMULATOR_WORKER_FAKE_PAGES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tandem::simulator {

class FakePages {
 public:
  FakePages(uint32_t page_tokens, uint32_t num_pages) : page_tokens_(page_tokens) {
    pages_.resize(num_pages);
    for (Page& page : pages_) page.rows.resize(page_tokens);
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

  // Lets others share a full page. Its key is the tenant's salt and the hash of all tokens up to
  // its end.
  void Publish(uint32_t id, const std::string& salt, uint64_t prefix_hash) {
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
  };
  uint64_t Age(uint32_t id) const {
    return pages_[id].key.has_value() ? 1 + pages_[id].used_at : 0;
  }

  uint32_t page_tokens_;
  std::vector<Page> pages_;
  std::map<std::pair<std::string, uint64_t>, uint32_t> cache_;
  uint64_t clock_ = 0;
};

}  // namespace tandem::simulator

#endif  // TANDEM_TESTS_SIMULATOR_WORKER_FAKE_PAGES_H_
