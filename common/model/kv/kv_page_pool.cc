#include "common/model/kv/kv_page_pool.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "common/status.h"

namespace tandem {
namespace {

void Check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "KV page pool: %s\n", what);
  std::abort();
}

}  // namespace

KvPage::~KvPage() {
  if (pool_ != nullptr) pool_->Release(index_);
}

float* KvPage::data() const { return pool_->memory_->HostPage(index_); }

bool KvPage::is_shared() const { return pool_->pages_[index_].num_leases > 1; }

bool KvPage::is_writable() const { return !is_shared() && !pool_->pages_[index_].is_published; }

absl::StatusOr<std::unique_ptr<KvPagePool>> KvPagePool::Create(const KvShape& shape,
                                                               uint64_t bytes) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<KvMemory> memory, HostKvMemory::Create(shape, bytes));
  return std::make_unique<KvPagePool>(shape, std::move(memory));
}

KvPagePool::KvPagePool(const KvShape& shape, std::unique_ptr<KvMemory> memory)
    : memory_(std::move(memory)), shape_(shape), num_pages_(memory_->num_pages()) {}

KvPagePool::~KvPagePool() { Check(num_leased_ == 0, "destroyed while pages are leased"); }

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
  memory_->Spoil(index, 0, kPageRows);
  pages_[index].drafter_rows_of = 0;
  pages_[index].features_of = features_version_;
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
  if (books.is_published || !has_features(page)) return;
  if (!published_.emplace(key, page.index_).second) return;
  books.is_published = true;
  books.key = key;
}

void KvPagePool::Unpublish(const KvPage& page) {
  Check(!page.is_shared(), "a page that others read is to be written");
  if (pages_[page.index_].is_published) Forget(page.index_);
  pages_[page.index_].drafter_rows_of = 0;
}

void KvPagePool::ForgetFeatures() {
  ++features_version_;
  for (const auto& [key, index] : published_) pages_[index].is_published = false;
  published_.clear();
  for (const size_t index : unused_) {
    memory_->Spoil(index, 0, kPageRows);
    free_.push_back(index);
  }
  unused_.clear();
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
    memory_->Spoil(index, 0, kPageRows);
    free_.push_back(index);
  }
}

void KvPagePool::Forget(size_t index) {
  published_.erase(pages_[index].key);
  pages_[index].is_published = false;
}

KvLayer KvPagePool::Layer(float* const* pages, size_t layer) const {
  return {.pages = pages,
          .page_offset = layer * shape_.layer_floats(),
          .num_kv_heads = shape_.num_kv_heads,
          .head_size = shape_.head_size};
}

absl::Status KvPagePool::Copy(const KvPage& from, const KvPage& to, size_t first_row) {
  TANDEM_RETURN_IF_ERROR(memory_->Copy(from.index_, to.index_));
  pages_[to.index_].features_of = pages_[from.index_].features_of;
  Spoil(to, first_row, kPageRows);
  return absl::OkStatus();
}

}  // namespace tandem
