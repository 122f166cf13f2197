// The pages of all KV caches of a model, leased out one by one.
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

// Stands for the rows of a page and all rows before them, see services/worker/slots/page_key.h.
using KvPageKey = std::array<uint8_t, 32>;

class KvPagePool;

// A lease of one page, given back when it goes.
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
  // Which of the memory's pages it is.
  size_t index() const { return index_; }
  // [layers, KV heads, keys and values of a block] f32, see KvLayer; null where the memory is not
  // the host's.
  float* data() const;
  // Somebody else has leased it too.
  bool is_shared() const;
  // Neither shared nor published: nobody counts on what it holds.
  bool is_writable() const;

 private:
  friend class KvPagePool;
  KvPage(KvPagePool* pool, size_t index) : pool_(pool), index_(index) {}

  KvPagePool* pool_ = nullptr;
  size_t index_ = 0;
};

// A page of the memory is first taken only when none that was taken before is free.
//
// The prefix cache is part of it: a page can be published under a key. Its next holder finds it by
// that key, as long as the page is leased, and afterwards until its memory is needed: the pages
// whose last lease ended longest ago are forgotten first.
//
// Invariant: every page is leased (once or more) or free. Not thread-safe.
class KvPagePool {
 public:
  // In memory of the host; errors are those of HostKvMemory.
  static absl::StatusOr<std::unique_ptr<KvPagePool>> Create(const ModelDescription& model,
                                                            uint64_t bytes);
  KvPagePool(const ModelDescription& model, std::unique_ptr<KvMemory> memory);
  // PRECOND: no page is leased.
  ~KvPagePool();
  KvPagePool(const KvPagePool&) = delete;
  KvPagePool& operator=(const KvPagePool&) = delete;

  // A page of one's own; what it holds is undefined (NaN in debug builds). None when none is free.
  KvPage Take();
  // One more lease of the page that was published under `key`; none when there is none.
  KvPage Find(const KvPageKey& key);
  // PRECOND: leased, and not written from now on until Unpublish. Does nothing when it is published
  // already, or another page under this key.
  void Publish(const KvPage& page, const KvPageKey& key);
  // The only holder is about to write it.
  void Unpublish(const KvPage& page);

  size_t num_pages() const { return num_pages_; }
  KvMemory& memory() const { return *memory_; }
  // Those that Take can give: published ones among them.
  size_t num_free() const { return num_pages_ - num_leased_; }
  size_t num_published() const { return published_.size(); }
  // Of the free ones, those that are published.
  size_t num_cached() const { return unused_.size(); }
  uint64_t page_bytes() const { return memory_->page_bytes(); }

  // The layer of a sequence that lies on `pages`, in memory of the host.
  KvLayer Layer(float* const* pages, size_t layer) const;
  // Copies all rows. Debug builds then overwrite the rows [first_row, kPageRows) of `to` with NaN.
  // An error is the memory's.
  absl::Status Copy(const KvPage& from, const KvPage& to, size_t first_row) const;
  // As KvMemory's.
  void Spoil(const KvPage& page, size_t begin, size_t end) const {
    memory_->Spoil(page.index_, begin, end);
  }

 private:
  friend class KvPage;

  struct PageBooks {
    uint32_t num_leases = 0;
    bool is_published = false;
    KvPageKey key;
    std::list<size_t>::iterator place;  // in unused_, when published and not leased
  };
  // A key is a digest: any part of it is a hash.
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
  size_t num_kv_heads_;
  size_t head_size_;
  size_t layer_floats_;  // of a page in memory of the host
  size_t num_pages_;
  size_t num_leased_ = 0;
  std::vector<PageBooks> pages_;  // those taken so far; the others were never touched
  std::vector<size_t> free_;      // of them, neither leased nor published; the last one goes first
  std::list<size_t> unused_;      // published and not leased; the first one is forgotten first
  std::unordered_map<KvPageKey, size_t, KeyHash> published_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_KV_KV_PAGE_POOL_H_
