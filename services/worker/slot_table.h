// What a worker knows of the slots of one session, and the rules that every command to a slot obeys
// (proto/tandem/v1/worker.proto: absolute, numbered, several lives).
#ifndef TANDEM_SERVICES_WORKER_SLOT_TABLE_H_
#define TANDEM_SERVICES_WORKER_SLOT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/token_hash.h"
#include "kernels/sampling/sampling_params.h"
#include "kernels/sampling/token_counts.h"
#include "services/worker/cache_pool.h"
#include "services/worker/page_key.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// The rows that a command adds to its slot.
struct NewRows {
  std::span<const int32_t> token_ids;  // committed
  size_t num_more = 0;                 // after those: tokens that are drafted or judged
  bool needs_logits = false;           // of the last token id: it must be computed
};

// One life of a slot. At rest the books (tokens, hashes, counts) describe the cache's rows, one for one.
class Slot {
 public:
  const SamplingParams& params() const { return params_; }
  KvCache* cache() const { return cache_.get(); }
  TokenCounts* counts() { return &counts_; }  // of all tokens held
  size_t length() const { return tokens_.size(); }
  size_t capacity() const { return cache_->capacity(); }
  uint64_t prefix_hash() const { return hashes_.back(); }
  // Of the first `length` tokens.
  int32_t num_output_tokens() const {
    return tokens_.size() > prompt_length_ ? static_cast<int32_t>(tokens_.size() - prompt_length_)
                                           : 0;
  }

  // Books tokens whose rows the model has put into the cache.
  void Append(std::span<const int32_t> token_ids);
  // Drops rows of the cache, booked or not, and their books; pages past them are given back.
  void TruncateTo(size_t length);
  // Offers the whole pages of the first `length` tokens, all of them committed, to other slots of
  // the same salt, of this session or another.
  void Publish(size_t length);

 private:
  friend class SlotTable;

  // Truncates to `length`, takes over pages that were published with the first of the new tokens,
  // books them, and leases pages for the rest. Returns how many tokens those pages hold.
  // RESOURCE_EXHAUSTED: no page, nothing changed.
  absl::StatusOr<size_t> Extend(size_t length, const NewRows& rows);
  void TruncateBooks(size_t length);
  std::vector<KvPage> FindPages(size_t length, std::span<const int32_t> token_ids);
  void ComputePageKeys(size_t num_pages);

  bool open_ = false;
  bool seen_ = false;          // any epoch so far
  uint32_t epoch_ = 0;         // newest seen; 0: none yet
  uint64_t last_command_ = 0;  // newest executed; outlives epochs
  SamplingParams params_;
  size_t prompt_length_ = 0;
  std::vector<int32_t> tokens_;
  std::vector<uint64_t> hashes_ = {kEmptyTokenHash};  // [n]: of the first n tokens
  std::vector<KvPageKey>
      page_keys_;             // [n]: of page n - 1, or what comes before the first; grows on demand
  size_t num_published_ = 0;  // pages
  TokenCounts counts_;
  CachePool::Lease cache_;
};

class SlotTable {
 public:
  // What to do with a command.
  enum class Verdict {
    kExecute,  // call Begin, then do it
    kReplay,   // not newer than the last one: answer with the stored result
    kRefuse,   // answer with `refusal`; nothing changed
  };
  struct Decision {
    Verdict verdict = Verdict::kRefuse;
    Slot* slot = nullptr;   // kExecute
    v1::SlotState refusal;  // kRefuse
  };

  // `pool` must outlive the table.
  SlotTable(CachePool* pool, size_t vocabulary_size, uint32_t num_slots)
      : pool_(pool), vocabulary_size_(vocabulary_size), slots_(num_slots) {}

  // Judges a command to a slot. `open`, if not null, starts a newer epoch: what the older one held is freed, and the
  // epoch stays open even if the command itself is refused (then it may be sent again without `open`).
  Decision Check(const v1::SlotPoint& at, const v1::SlotOpen* open);
  // All PRECOND: Check(at) said kExecute. Rolls back to at.length and takes the command's number.
  void RollBack(const v1::SlotPoint& at, Slot& slot);
  // That, and makes room for `rows`. Returns how many of its first token ids came out of the prefix
  // cache: they are booked and need not be computed. RESOURCE_EXHAUSTED: no page, nothing changed.
  absl::StatusOr<size_t> Begin(const v1::SlotPoint& at, const NewRows& rows, Slot& slot);

  // Frees what the slot holds; the epoch and older ones are refused from now on. A late close of an older epoch, or
  // of a slot that does not exist, does nothing.
  void Close(const v1::SlotClose& close);

  // How the slot stands after a command.
  v1::SlotState State(const v1::SlotPoint& at, const Slot& slot) const;
  // The answer to a command that was refused.
  v1::SlotState Refusal(const v1::SlotPoint& at, v1::WorkerCode code,
                        const std::string& message) const;

 private:
  absl::Status Open(const v1::SlotPoint& at, const v1::SlotOpen& open, Slot& slot);

  CachePool* pool_;
  size_t vocabulary_size_;
  std::vector<Slot> slots_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_SLOT_TABLE_H_
