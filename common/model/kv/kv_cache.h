// The keys and values of one slot for all layers: a table of pages.
#ifndef TANDEM_COMMON_MODEL_KV_KV_CACHE_H_
#define TANDEM_COMMON_MODEL_KV_KV_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/model/kv/kv_page_pool.h"
#include "kernels/attention.h"

namespace tandem {

// Holds F32 values on the CPU (docs/adr/0005-kv-cache-f32.md). A row of the model is written only
// if it lies on a page that no other cache holds and that is not published. A drafter beside the
// model may add its own part of a row to any page, because that follows from the page's tokens too.
class KvCache {
 public:
  // Creates a cache that holds no page. `pool` must outlive the cache.
  KvCache(KvPagePool* pool, size_t capacity) : pool_(pool), capacity_(capacity) {}
  // Gives the pages back, the last page first. The pool therefore forgets the end of a published
  // sequence before its beginning. The end cannot be found without the beginning.
  ~KvCache() { DropPages(0); }
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  size_t length() const { return length_; }           // number of rows held
  size_t capacity() const { return capacity_; }       // largest number of rows
  size_t num_pages() const { return pages_.size(); }  // number of leased pages
  KvPagePool& pool() const { return *pool_; }

  // Keeps rows [0, length), and gives back every page past them. Debug builds fill the rows that
  // are given back with NaN, unless another cache can read them. PRECOND: length <= length().
  void TruncateTo(size_t length);

  // Truncates to `length`, appends the pages `found` with all their rows, and leases pages for
  // `rows` more rows. RESOURCE_EXHAUSTED: the pool has too few pages, and nothing has changed.
  // Other errors come from the memory. The rows from `length` on are then undefined.
  // PRECOND: length <= length(). `length` is a multiple of kPageRows unless `found` is empty. All
  // rows fit into capacity().
  absl::Status Extend(size_t length, std::vector<KvPage> found, size_t rows);
  // Makes room for `rows` rows after the rows held. Does nothing if there is room.
  absl::Status Reserve(size_t rows);
  // Counts rows whose keys and values have been written. PRECOND: Reserve(rows) was called.
  void Grow(size_t rows);

  // Keeps, of the rows from `begin` on, only the rows begin + kept[i]. They become the rows
  // begin + i. All errors come from the memory; the rows from `begin` on are then undefined.
  // PRECOND: `kept` is ascending, and the rows from `begin` on were added since pages were last
  // published or shared.
  absl::Status KeepPath(size_t begin, std::span<const int32_t> kept);

  // Offers the rows of page `index` to other caches.
  // PRECOND: (index + 1) * kPageRows <= length().
  void Publish(size_t index, const KvPageKey& key) { pool_->Publish(pages_.at(index), key); }

  // Returns the index in the pool's memory of this cache's page `index`.
  size_t PageIndex(size_t index) const { return pages_[index].index(); }
  // Returns the keys and values of a layer in memory of the host. Valid until the next page is
  // leased.
  KvLayer Layer(size_t layer) const { return pool_->Layer(table_.data(), layer); }
  // Returns the feature of a row in memory of the host. Valid until the next page is leased.
  float* Feature(size_t row) const { return pool_->Feature(table_.data(), row); }

  // Returns the number of first rows that also hold what the drafter beside the model computed for
  // them, for this cache or for another one with the same pages.
  size_t NumDrafterRows() const;
  // Says that the first `rows` rows hold it now. PRECOND: `rows` is at most length(), and at least
  // what was said before for these rows by the drafter that there is now.
  void SetDrafterRows(size_t rows);
  // Whether the features of all rows are those that the drafter reads. A cache that has rows of
  // before KvPagePool::ForgetFeatures lacks some.
  bool has_features() const { return pages_.empty() || pool_->has_features(pages_.front()); }
  // Returns how many rows after the rows held can be written on the pages leased, on free pages
  // that nobody can find, and on one page that somebody could find. At most `rows`, and only as
  // many as fit into capacity().
  size_t RoomFor(size_t rows) const;

 private:
  // Returns whether rows that follow length() may be written to the page on which they begin.
  bool EndIsWritable() const;
  absl::Status MakeEndWritable();
  void AddPage(KvPage page);
  void DropPages(size_t num_kept);

  KvPagePool* pool_;
  size_t capacity_;
  size_t length_ = 0;
  size_t num_drafter_rows_ = 0;   // at least so many; pages may know of more
  uint64_t drafter_version_ = 0;  // the pool's, when num_drafter_rows_ was set
  std::vector<KvPage> pages_;
  std::vector<float*> table_;  // addresses of the pages
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_KV_KV_CACHE_H_
