// The pages of all KV caches of a model. They are leased one by one.
#ifndef TANDEM_COMMON_MODEL_KV_KV_PAGE_POOL_H_
#define TANDEM_COMMON_MODEL_KV_KV_PAGE_POOL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/kv/kv_memory.h"
#include "common/model/model_description.h"
#include "kernels/attention.h"

namespace tandem {

// Stands for the rows of a page and all rows before them (services/worker/slots/page_key.h).
using KvPageKey = std::array<uint8_t, 32>;

class KvPagePool;

// A lease of one page. The destructor gives the lease back.
class KvPage {
 public:
  KvPage() = default;
  KvPage(KvPage&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), index_(other.index_) {}
  KvPage& operator=(KvPage&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(index_, other.index_);
    return *this;
  }
  ~KvPage();

  explicit operator bool() const { return pool_ != nullptr; }
  // Returns the index of the page in the memory.
  size_t index() const { return index_; }
  // Returns [layers, KV heads, keys and values of a block] f32 (see KvLayer), or null if the memory
  // does not belong to the host.
  float* data() const;
  // Returns whether the page has another lease.
  bool is_shared() const;
  // Returns whether the page is neither shared nor published, so that nobody relies on its
  // contents.
  bool is_writable() const;

 private:
  friend class KvPagePool;
  KvPage(KvPagePool* pool, size_t index) : pool_(pool), index_(index) {}

  KvPagePool* pool_ = nullptr;
  size_t index_ = 0;
};

// Leases the pages of a memory. A page that was never taken is used only if no other page is free.
//
// The prefix cache is part of the pool. A page can be published under a key, and later holders find
// the page by this key. They find it while the page is leased, and afterwards until its memory is
// needed. The pages whose last lease ended longest ago are forgotten first.
//
// Invariant: every page is leased (once or more) or free. Not thread-safe.
class KvPagePool {
 public:
  // Creates a pool in memory of the host. The errors are those of HostKvMemory.
  static absl::StatusOr<std::unique_ptr<KvPagePool>> Create(const KvShape& shape, uint64_t bytes);
  KvPagePool(const KvShape& shape, std::unique_ptr<KvMemory> memory);
  // PRECOND: no page is leased.
  ~KvPagePool();
  KvPagePool(const KvPagePool&) = delete;
  KvPagePool& operator=(const KvPagePool&) = delete;

  // Leases a page that nobody else holds. Its contents are undefined (NaN in debug builds). Returns
  // an empty lease if no page is free.
  KvPage Take();
  // Leases the page that was published under `key` once more. Returns an empty lease if there is no
  // such page.
  KvPage Find(const KvPageKey& key);
  // Publishes the page under `key`. Does nothing if the page is published already, or if another
  // page is published under this key, or if the page lacks features. PRECOND: the page is leased,
  // and nobody writes rows of the model to it until Unpublish.
  void Publish(const KvPage& page, const KvPageKey& key);
  // Ends the publication of a page, because its only holder is about to write to it.
  void Unpublish(const KvPage& page);

  // Whether all rows of the page also hold what the drafter beside the model computed for them.
  // Whoever holds the page may add this, because it follows from the same tokens as the page's key.
  // Pages that are taken or unpublished do not hold it.
  bool has_drafter_rows(const KvPage& page) const {
    return pages_[page.index_].drafter_rows_of == drafter_version_;
  }
  void SetDrafterRows(const KvPage& page, bool has) {
    pages_[page.index_].drafter_rows_of = has ? drafter_version_ : 0;
  }
  // Whether the features of all rows of the page are those that the drafter reads.
  bool has_features(const KvPage& page) const {
    return pages_[page.index_].features_of == features_version_;
  }

  // The drafter beside the model was replaced. No page holds what the new one computes.
  void ForgetDrafterRows() { ++drafter_version_; }
  // Grows with each call of ForgetDrafterRows.
  uint64_t drafter_version() const { return drafter_version_; }
  // The new drafter reads other features, which rows have that are written from now on. Pages with
  // rows of before are not published any more, so that no later request finds them.
  void ForgetFeatures();

  const KvShape& shape() const { return shape_; }
  size_t num_pages() const { return num_pages_; }
  KvMemory& memory() const { return *memory_; }
  // Returns the number of pages that Take can lease. They include published pages without a lease.
  size_t num_free() const { return num_pages_ - num_leased_; }
  size_t num_published() const { return published_.size(); }
  // Returns the number of free pages that are published.
  size_t num_cached() const { return unused_.size(); }
  uint64_t page_bytes() const { return memory_->page_bytes(); }

  // Returns a layer of the sequence that lies on `pages`, which are in memory of the host.
  KvLayer Layer(float* const* pages, size_t layer) const;
  // Returns the feature of a row of the sequence: [feature_floats] f32 in memory of the host.
  float* Feature(float* const* pages, size_t row) const {
    return pages[row / kPageRows] + shape_.layers_floats() +
           row % kPageRows * shape_.feature_floats;
  }
  // Copies all rows. Debug builds then overwrite the rows [first_row, kPageRows) of `to` with NaN.
  // All errors come from the memory.
  absl::Status Copy(const KvPage& from, const KvPage& to, size_t first_row);
  // Calls KvMemory::Spoil.
  void Spoil(const KvPage& page, size_t begin, size_t end) const {
    memory_->Spoil(page.index_, begin, end);
  }

 private:
  friend class KvPage;

  struct PageBooks {
    uint32_t num_leases = 0;
    bool is_published = false;
    uint64_t drafter_rows_of = 0;  // the drafter version that computed all rows; 0: none did
    uint64_t features_of = 0;      // the oldest features version of its rows
    KvPageKey key;
    std::list<size_t>::iterator place;  // place in unused_ if the page is published and not leased
  };
  // A key is a digest, so any part of it is a hash.
  struct KeyHash {
    size_t operator()(const KvPageKey& key) const {
      size_t hash;
      std::memcpy(&hash, key.data(), sizeof(hash));
      return hash;
    }
  };

  KvPage Lease(size_t index);
  void Release(size_t index);
  void Forget(size_t index);

  std::unique_ptr<KvMemory> memory_;
  KvShape shape_;
  size_t num_pages_;
  size_t num_leased_ = 0;
  uint64_t drafter_version_ = 1;
  uint64_t features_version_ = 1;
  std::vector<PageBooks> pages_;  // pages taken so far; the other pages were never touched
  std::vector<size_t> free_;      // taken pages without lease and key; the last is leased first
  std::list<size_t> unused_;      // published pages without lease; the first is forgotten first
  std::unordered_map<KvPageKey, size_t, KeyHash> published_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_KV_KV_PAGE_POOL_H_
