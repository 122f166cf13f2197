// The slots of one session, and the rules that every command to a slot obeys: commands are absolute
// and numbered, and a slot has several lives (proto/tandem/v1/worker.proto).
#ifndef TANDEM_SERVICES_WORKER_SLOTS_SLOT_TABLE_H_
#define TANDEM_SERVICES_WORKER_SLOTS_SLOT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/token_hash.h"
#include "kernels/sampling/transform/sampling_params.h"
#include "kernels/sampling/transform/token_counts.h"
#include "services/worker/slots/cache_pool.h"
#include "services/worker/slots/page_key.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// The rows that a command adds to its slot.
struct NewRows {
  std::span<const int32_t> token_ids;  // committed
  size_t num_more = 0;                 // after those: tokens that are drafted or judged
  bool needs_logits = false;           // true: the last token id must be computed for its logits
  bool needs_all_logits = false;       // true: each must be, so the prefix cache is of no use
};

// One life of a slot. Between commands the books (tokens, hashes, counts) describe the rows of the
// cache, one entry for each row.
class Slot {
 public:
  const SamplingParams& params() const { return params_; }
  KvCache* cache() { return cache_.get(); }
  TokenCounts* counts() { return &counts_; }  // counts all tokens that the slot holds
  size_t length() const { return tokens_.size(); }
  std::span<const int32_t> token_ids() const { return tokens_; }
  size_t capacity() const { return cache_->capacity(); }
  uint64_t prefix_hash() const { return hashes_.back(); }
  // Number of tokens after the prompt.
  int32_t num_output_tokens() const {
    return tokens_.size() > prompt_length_ ? static_cast<int32_t>(tokens_.size() - prompt_length_)
                                           : 0;
  }

  // Books tokens whose rows the model has put into the cache.
  void Append(std::span<const int32_t> token_ids);
  // Keeps and books the draft tokens that `path` names by index, in ascending order, and drops the
  // rows of the other ones. Errors come from the device; the rows that were not booked are then
  // undefined. PRECOND: the rows of all draft tokens follow the booked rows.
  absl::Status KeepPath(std::span<const int32_t> draft_token_ids, std::span<const int32_t> path);
  // Drops the rows from `length` on, booked or not, and their books. Gives back pages without rows.
  void TruncateTo(size_t length);
  // Offers the whole pages of the first `length` tokens to other slots of the same salt, in all
  // sessions. PRECOND: these tokens are committed.
  void Publish(size_t length);

 private:
  friend class SlotTable;

  // Truncates to `length`. Takes over published pages that begin with the new tokens, books their
  // tokens, and leases pages for the remaining rows. Returns the number of tokens in the published
  // pages. RESOURCE_EXHAUSTED: there are too few pages, and nothing changed.
  absl::StatusOr<size_t> Extend(size_t length, const NewRows& rows);
  void TruncateBooks(size_t length);
  std::vector<KvPage> FindPages(size_t length, std::span<const int32_t> token_ids);
  void ComputePageKeys(size_t num_pages);

  bool open_ = false;
  bool seen_ = false;          // true: some epoch was opened or closed
  uint32_t epoch_ = 0;         // newest epoch; 0: none yet
  uint64_t last_command_ = 0;  // number of the newest executed command; outlives epochs
  SamplingParams params_;
  size_t prompt_length_ = 0;
  std::vector<int32_t> tokens_;
  std::vector<uint64_t> hashes_ = {kEmptyTokenHash};  // [n]: hash of the first n tokens
  // [n]: key of page n - 1; [0]: the key that precedes the first page. Grows on demand.
  std::vector<KvPageKey> page_keys_;
  size_t num_published_ = 0;  // published pages
  TokenCounts counts_;
  CachePool::Lease cache_;
};

class SlotTable {
 public:
  // What to do with a command.
  enum class Action {
    kExecute,  // call Begin or RollBack, then execute the command
    kReplay,   // the command is not newer than the last one: answer with the stored result
    kRefuse,   // answer with `refusal`; nothing changed
  };
  struct Decision {
    Action action = Action::kRefuse;
    Slot* slot = nullptr;   // set for kExecute
    v1::SlotState refusal;  // set for kRefuse
  };

  // `pool` must outlive the table.
  SlotTable(CachePool* pool, size_t vocabulary_size, uint32_t num_slots)
      : pool_(pool), vocabulary_size_(vocabulary_size), slots_(num_slots) {}

  // Decides about a command to a slot. `open`, if not null, starts a newer epoch: the rows of the
  // older epoch are freed. The new epoch stays open even if the command itself is refused; the
  // command may then be sent again without `open`.
  Decision Check(const v1::SlotPoint& at, const v1::SlotOpen* open);
  // Rolls back to at.length and takes the command's number. PRECOND: Check(at) said kExecute.
  void RollBack(const v1::SlotPoint& at, Slot& slot);
  // Does the same, and makes room for `rows`. Returns how many of the first token ids came from the
  // prefix cache: these tokens are booked and need not be computed. RESOURCE_EXHAUSTED: there are
  // too few pages, and nothing changed. PRECOND: Check(at) said kExecute.
  absl::StatusOr<size_t> Begin(const v1::SlotPoint& at, const NewRows& rows, Slot& slot);

  // Frees the slot. Its epoch and older epochs are refused from now on. A late close of an older
  // epoch, or of a slot that does not exist, does nothing.
  void Close(const v1::SlotClose& close);

  // Returns the state of the slot after a command.
  v1::SlotState State(const v1::SlotPoint& at, const Slot& slot) const;
  // Returns the answer to a command that was refused.
  v1::SlotState Refusal(const v1::SlotPoint& at, v1::WorkerCode code,
                        const std::string& message) const;

 private:
  absl::Status Open(const v1::SlotPoint& at, const v1::SlotOpen& open, Slot& slot);

  CachePool* pool_;
  size_t vocabulary_size_;
  std::vector<Slot> slots_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_SLOTS_SLOT_TABLE_H_
