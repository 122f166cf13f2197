// An estimate of the free pages in a worker's pool of KV pages.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_SLOTS_PAGE_BUDGET_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_SLOTS_PAGE_BUDGET_H_

#include <cstdint>

namespace tandem {

// Batches are planned with the estimate, and the worker has the last word (RESOURCE_EXHAUSTED). The
// estimate can be too high, because other routers take pages of the same pool. It can also be too
// high because pages that slots share through the prefix cache come back only when the last of
// these slots goes.
class PageBudget {
 public:
  // A new session began, and holds nothing. 0 pages: pages do not limit.
  void Attached(uint32_t page_tokens, uint32_t num_pages) {
    page_tokens_ = page_tokens;
    num_pages_ = page_tokens == 0 ? 0 : num_pages;
    reported_ = num_pages_;
    queued_ = 0;
    sent_ = 0;
  }

  bool limited() const { return num_pages_ > 0; }
  uint32_t page_tokens() const { return page_tokens_; }
  uint32_t num_pages() const { return num_pages_; }
  // Rows that one sequence can hold when it has the pool for itself.
  uint64_t capacity() const { return uint64_t{num_pages_} * page_tokens_; }
  int64_t PagesOf(uint32_t rows) const {
    return limited() ? (int64_t{rows} + page_tokens_ - 1) / page_tokens_ : 0;
  }

  int64_t num_free() const { return reported_ + queued_ + sent_; }

  // A slot with this number of rows will be closed by the next command.
  void CloseQueued(uint32_t rows) { queued_ += PagesOf(rows); }
  // The command with the closes goes out. PRECOND: no batch is under way, so that the next report
  // counts these pages.
  void ClosesSent() { sent_ += queued_, queued_ = 0; }
  // A rollback that returns this number of pages goes out. PRECOND: as for ClosesSent.
  void RollbackSent(int64_t num_pages) { sent_ += num_pages; }
  // The reply to a batch stated this number of free pages.
  void Reported(uint32_t num_free) {
    reported_ = num_free;
    sent_ = 0;
  }

 private:
  uint32_t page_tokens_ = 0;
  uint32_t num_pages_ = 0;
  int64_t reported_ = 0;
  int64_t queued_ = 0;  // pages of closes that wait for a command to ride on
  int64_t sent_ = 0;    // pages of closes and rollbacks that went out after the last report
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_SLOTS_PAGE_BUDGET_H_
