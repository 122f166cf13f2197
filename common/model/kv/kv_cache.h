// Keys and values of one slot, for all layers: a table of pages.
#ifndef TANDEM_COMMON_MODEL_KV_KV_CACHE_H_
#define TANDEM_COMMON_MODEL_KV_KV_CACHE_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "common/model/kv/kv_page_pool.h"
#include "kernels/attention.h"

namespace tandem {

// F32 on the CPU (docs/adr/0005-kv-cache-f32.md). Rows are written only where they lie on a page that no other
// cache holds and that is not published.
class KvCache {
 public:
  // Holds no page yet. `pool` must outlive it.
  KvCache(KvPagePool* pool, size_t capacity) : pool_(pool), capacity_(capacity) {}
  // Gives the pages back, the last one first: of a published sequence the end is forgotten before
  // the beginning, without which it cannot be found.
  ~KvCache() { DropPages(0); }
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  size_t length() const { return length_; }           // rows held
  size_t capacity() const { return capacity_; }       // rows at most
  size_t num_pages() const { return pages_.size(); }  // leased
  KvPagePool& pool() const { return *pool_; }

  // Keeps rows [0, length), and gives back every page past them. PRECOND: length <= length(). Debug
  // builds fill the rows given back with NaN, but for those that others read.
  void TruncateTo(size_t length);

  // Truncates to `length`, appends the pages `found` with all their rows, and leases pages for
  // `rows` rows more. RESOURCE_EXHAUSTED: the pool has too few, and nothing changed. Another error
  // is the memory's; what the cache holds from `length` on is then undefined.
  // PRECOND: length <= length(), and it is a multiple of kPageRows unless `found` is empty; all
  // rows fit into capacity().
  absl::Status Extend(size_t length, std::vector<KvPage> found, size_t rows);
  // Room for `rows` rows after those held; does nothing when there is.
  absl::Status Reserve(size_t rows);
  // Counts rows whose keys and values have been written. PRECOND: Reserve(rows) was called.
  void Grow(size_t rows);

  // Offers the rows of page `index` to other caches. PRECOND: (index + 1) * kPageRows <= length().
  void Publish(size_t index, const KvPageKey& key) { pool_->Publish(pages_.at(index), key); }

  // Which of the pool's memory page `index` lies in.
  size_t PageIndex(size_t index) const { return pages_[index].index(); }
  // In memory of the host. Valid until the next page is leased.
  KvLayer Layer(size_t layer) const { return pool_->Layer(table_.data(), layer); }

 private:
  // Rows that follow length() may be written to the page on which they begin.
  bool EndIsWritable() const;
  absl::Status MakeEndWritable();
  void AddPage(KvPage page);
  void DropPages(size_t num_kept);

  KvPagePool* pool_;
  size_t capacity_;
  size_t length_ = 0;
  std::vector<KvPage> pages_;
  std::vector<float*> table_;  // where the pages are
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_KV_KV_CACHE_H_
