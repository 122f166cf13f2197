#include "common/model/kv_page_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>

#include "common/status.h"

namespace tandem {
namespace {

size_t PageFloats(const ModelConfig& config) {
  return kPageRows * config.num_layers * config.num_kv_heads * config.head_size * 2;
}

void Check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "KV page pool: %s\n", what);
  std::abort();
}

}  // namespace

KvPage::~KvPage() {
  if (pool_ != nullptr) pool_->Release(index_);
}

float* KvPage::data() const { return pool_->Data(index_); }

bool KvPage::is_shared() const { return pool_->pages_[index_].num_leases > 1; }

bool KvPage::is_writable() const { return !is_shared() && !pool_->pages_[index_].is_published; }

uint64_t KvPagePool::PageBytes(const ModelConfig& config) {
  return PageFloats(config) * sizeof(float);
}

uint64_t KvPagePool::Bytes(const ModelConfig& config, size_t rows) {
  return (rows + kPageRows - 1) / kPageRows * PageBytes(config);
}

absl::StatusOr<std::unique_ptr<KvPagePool>> KvPagePool::Create(const ModelConfig& config,
                                                               uint64_t bytes) {
  const uint64_t page_bytes = PageBytes(config);
  const uint64_t reserved_bytes = bytes / page_bytes * page_bytes;
  if (reserved_bytes == 0) {
    return InvalidArgument(
        "KV cache: " + std::to_string(bytes) + " bytes (--kv-cache-bytes) hold no page: one, of " +
        std::to_string(kPageRows) + " tokens, takes " + std::to_string(page_bytes));
  }
  void* data = mmap(nullptr, reserved_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return ResourceExhausted("KV cache: " + std::to_string(reserved_bytes) +
                             " bytes (--kv-cache-bytes) cannot be reserved");
  }
  return std::unique_ptr<KvPagePool>(
      new KvPagePool(config, static_cast<float*>(data), reserved_bytes));
}

KvPagePool::KvPagePool(const ModelConfig& config, float* data, uint64_t reserved_bytes)
    : num_layers_(config.num_layers),
      num_kv_heads_(config.num_kv_heads),
      head_size_(config.head_size),
      page_floats_(PageFloats(config)),
      num_pages_(reserved_bytes / PageBytes(config)),
      data_(data),
      reserved_bytes_(reserved_bytes) {}

KvPagePool::~KvPagePool() {
  Check(num_leased_ == 0, "destroyed while pages are leased");
  munmap(data_, reserved_bytes_);
}

KvPage KvPagePool::Take() {
  size_t index = pages_.size();
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else if (index < num_pages_) {
    pages_.emplace_back();
  } else if (!unused_.empty()) {
    index = unused_.front();
    unused_.pop_front();
    Forget(index);
  } else {
    return KvPage();
  }
  SpoilRows(index, 0, kPageRows);
  return Lease(index);
}

KvPage KvPagePool::Find(const KvPageKey& key) {
  const auto found = published_.find(key);
  if (found == published_.end()) return KvPage();
  const PageBooks& page = pages_[found->second];
  if (page.num_leases == 0) unused_.erase(page.place);
  return Lease(found->second);
}

void KvPagePool::Publish(const KvPage& page, const KvPageKey& key) {
  PageBooks& books = pages_[page.index_];
  if (books.is_published || !published_.emplace(key, page.index_).second) return;
  books.is_published = true;
  books.key = key;
}

void KvPagePool::Unpublish(const KvPage& page) {
  Check(!page.is_shared(), "a page that others read is to be written");
  if (pages_[page.index_].is_published) Forget(page.index_);
}

KvPage KvPagePool::Lease(size_t index) {
  if (pages_[index].num_leases++ == 0) ++num_leased_;
  return KvPage(this, index);
}

void KvPagePool::Release(size_t index) {
  PageBooks& page = pages_[index];
  if (--page.num_leases > 0) return;
  --num_leased_;
  if (page.is_published) {
    page.place = unused_.insert(unused_.end(), index);
  } else {
    SpoilRows(index, 0, kPageRows);
    free_.push_back(index);
  }
}

void KvPagePool::Forget(size_t index) {
  published_.erase(pages_[index].key);
  pages_[index].is_published = false;
}

KvLayer KvPagePool::Layer(float* const* pages, size_t layer) const {
  return {.pages = pages,
          .page_offset = layer * (page_floats_ / num_layers_),
          .num_kv_heads = num_kv_heads_,
          .head_size = head_size_};
}

void KvPagePool::Copy(const KvPage& from, const KvPage& to, size_t first_row) const {
  std::copy_n(from.data(), page_floats_, to.data());
  Spoil(to, first_row, kPageRows);
}

void KvPagePool::Spoil(const KvPage& page, size_t begin, size_t end) const {
  SpoilRows(page.index_, begin, end);
}

void KvPagePool::SpoilRows([[maybe_unused]] size_t index, [[maybe_unused]] size_t begin,
                           [[maybe_unused]] size_t end) const {
#ifndef NDEBUG
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  float* const data = Data(index);
  for (size_t layer = 0; layer < num_layers_; ++layer) {
    const KvLayer kv = Layer(&data, layer);
    for (size_t head = 0; head < num_kv_heads_; ++head) {
      for (size_t i = 0; i < head_size_; ++i) {
        std::fill(kv.Keys(head, 0) + i * kPageRows + begin, kv.Keys(head, 0) + i * kPageRows + end,
                  kNan);
      }
      std::fill(kv.Values(head, 0) + begin * head_size_, kv.Values(head, 0) + end * head_size_,
                kNan);
    }
  }
#endif
}

}  // namespace tandem
