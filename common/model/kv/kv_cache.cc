#include "common/model/kv/kv_cache.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "common/status.h"

namespace tandem {
namespace {

size_t NumPages(size_t rows) { return (rows + kPageRows - 1) / kPageRows; }

void Check(bool holds, const char* what, size_t got, size_t limit) {
  if (holds) return;
  std::fprintf(stderr, "KV cache: %s %zu, limit %zu\n", what, got, limit);
  std::abort();
}

}  // namespace

void KvCache::TruncateTo(size_t length) {
  Check(length <= length_, "TruncateTo", length, length_);
  DropPages(NumPages(length));
  if (length % kPageRows != 0 && pages_.back().is_writable()) {
    pool_->Spoil(pages_.back(), length % kPageRows, kPageRows);
    pool_->SetDrafterRows(pages_.back(), false);
  }
  length_ = length;
  num_drafter_rows_ = std::min(num_drafter_rows_, length);
}

size_t KvCache::NumDrafterRows() const {
  size_t rows = drafter_version_ == pool_->drafter_version() ? num_drafter_rows_ : 0;
  for (size_t page = rows / kPageRows; (page + 1) * kPageRows <= length_; ++page) {
    if (!pool_->has_drafter_rows(pages_[page])) break;
    rows = (page + 1) * kPageRows;
  }
  return rows;
}

void KvCache::SetDrafterRows(size_t rows) {
  Check(rows <= length_, "SetDrafterRows", rows, length_);
  if (drafter_version_ != pool_->drafter_version()) num_drafter_rows_ = 0;
  drafter_version_ = pool_->drafter_version();
  Check(num_drafter_rows_ <= rows, "SetDrafterRows after", num_drafter_rows_, rows);
  for (size_t page = num_drafter_rows_ / kPageRows; (page + 1) * kPageRows <= rows; ++page) {
    pool_->SetDrafterRows(pages_[page], true);
  }
  num_drafter_rows_ = rows;
}

size_t KvCache::RoomFor(size_t rows) const {
  rows = std::min(rows, capacity_ - length_);
  if (!EndIsWritable()) return 0;
  const size_t free_pages =
      std::max(pool_->num_free() - pool_->num_cached(), std::min<size_t>(pool_->num_free(), 1));
  return std::min(rows, (pages_.size() + free_pages) * kPageRows - length_);
}

absl::Status KvCache::Extend(size_t length, std::vector<KvPage> found, size_t rows) {
  Check(length <= length_, "Extend from", length, length_);
  Check(found.empty() || length % kPageRows == 0, "Extend by whole pages from", length, 0);
  const size_t end = length + found.size() * kPageRows + rows;
  Check(end <= capacity_, "Extend to", end, capacity_);
  const size_t kept = NumPages(length);
  const bool copies = rows > 0 && length % kPageRows != 0 && pages_[kept - 1].is_shared();
  const size_t needed = NumPages(end) - kept - found.size() + (copies ? 1 : 0);
  const auto given_back =
      static_cast<size_t>(std::count_if(pages_.begin() + static_cast<ptrdiff_t>(kept), pages_.end(),
                                        [](const KvPage& page) { return !page.is_shared(); }));
  if (needed > pool_->num_free() + given_back) {
    return ResourceExhausted("KV cache: " + std::to_string(needed) + " pages wanted, " +
                             std::to_string(pool_->num_free() + given_back) + " of " +
                             std::to_string(pool_->num_pages()) + " are free (--kv-cache-bytes)");
  }
  TruncateTo(length);
  for (KvPage& page : found) AddPage(std::move(page));
  length_ += found.size() * kPageRows;
  if (rows > 0 && !EndIsWritable()) TANDEM_RETURN_IF_ERROR(MakeEndWritable());
  while (pages_.size() < NumPages(end)) AddPage(pool_->Take());
  return absl::OkStatus();
}

absl::Status KvCache::Reserve(size_t rows) {
  if (NumPages(length_ + rows) <= pages_.size() && EndIsWritable()) return absl::OkStatus();
  return Extend(length_, {}, rows);
}

void KvCache::Grow(size_t rows) {
  Check(NumPages(length_ + rows) <= pages_.size(), "Grow by", rows,
        pages_.size() * kPageRows - length_);
  length_ += rows;
}

absl::Status KvCache::KeepPath(size_t begin, std::span<const int32_t> kept) {
  std::vector<KvRowMove> moves;
  for (size_t i = 0; i < kept.size(); ++i) {
    const size_t from = begin + static_cast<size_t>(kept[i]);
    const size_t to = begin + i;
    Check(from < length_, "KeepPath from", from, length_);
    if (from == to) continue;
    moves.push_back({.from_page = PageIndex(from / kPageRows),
                     .from_row = from % kPageRows,
                     .to_page = PageIndex(to / kPageRows),
                     .to_row = to % kPageRows});
  }
  if (!moves.empty()) TANDEM_RETURN_IF_ERROR(pool_->memory().CopyRows(moves));
  TruncateTo(begin + kept.size());
  return absl::OkStatus();
}

bool KvCache::EndIsWritable() const {
  return length_ % kPageRows == 0 || pages_[length_ / kPageRows].is_writable();
}

absl::Status KvCache::MakeEndWritable() {
  KvPage& page = pages_.back();
  if (page.is_shared()) {
    KvPage copy = pool_->Take();
    TANDEM_RETURN_IF_ERROR(pool_->Copy(page, copy, length_ % kPageRows));
    table_.back() = copy.data();
    page = std::move(copy);
  } else {
    pool_->Unpublish(page);
    pool_->Spoil(page, length_ % kPageRows, kPageRows);
  }
  return absl::OkStatus();
}

void KvCache::AddPage(KvPage page) {
  table_.push_back(page.data());
  pages_.push_back(std::move(page));
}

void KvCache::DropPages(size_t num_kept) {
  table_.resize(std::min(table_.size(), num_kept));
  while (pages_.size() > num_kept) pages_.pop_back();
}

}  // namespace tandem
