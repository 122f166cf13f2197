// The slots of one session at a fake worker, by the rules at the top of worker.proto.
#ifndef TANDEM_TESTS_SIMULATOR_WORKER_FAKE_SLOTS_H_
#define TANDEM_TESTS_SIMULATOR_WORKER_FAKE_SLOTS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/token_hash.h"
#include "tandem/v1/worker.pb.h"
#include "tests/simulator/scenario/planted_bug.h"
#include "tests/simulator/scenario/seeded_random.h"
#include "tests/simulator/worker/fake_pages.h"

namespace tandem::simulator {

// A slot has books (tokens, hashes) and rows (in pages). If a bug makes them differ, the model
// continues from the rows, and the output is wrong.
struct FakeSlot {
  bool seen = false;
  bool open = false;
  uint32_t epoch = 0;         // newest epoch seen, or 0
  uint64_t last_command = 0;  // newest command executed; kept when an epoch ends
  v1::SlotOpen request;
  std::vector<int32_t> tokens;
  std::vector<uint64_t> hashes = {kEmptyTokenHash};  // hashes[n] is that of the first n tokens
  std::vector<uint32_t> pages;
  std::optional<uint64_t> wrong_row;  // planted row that the next row follows instead of the last
  size_t num_heads_rows = 0;          // at least so many rows of the heads; pages may know of more
  uint64_t heads_version = 0;         // that of the pages when num_heads_rows was set
};

class FakeSlots {
 public:
  enum class Verdict : uint8_t { kExecute, kReplay, kRefuse };

  // `num_free_slots` counts the worker's free slots for all its sessions.
  FakeSlots(FakePages* pages, uint32_t* num_free_slots, uint32_t num_slots, PlantedBug bug)
      : pages_(pages), num_free_slots_(num_free_slots), bug_(bug), slots_(num_slots) {}
  FakeSlots(const FakeSlots&) = delete;
  FakeSlots& operator=(const FakeSlots&) = delete;
  ~FakeSlots();

  std::vector<FakeSlot>& slots() { return slots_; }
  const std::vector<FakeSlot>& slots() const { return slots_; }

  // Returns what the worker does with a command. Fills `state` for kRefuse. Begins a newer epoch.
  Verdict Check(const v1::SlotPoint& at, const v1::SlotOpen* open, v1::SlotState* state);
  // Returns whether there are pages for `rows` rows after a rollback of the slot to `length`.
  bool HasRoom(const FakeSlot& slot, uint32_t length, size_t rows) const;
  // Rolls the slot back and stores the command's number. PRECOND: Check returned kExecute.
  void Begin(const v1::SlotPoint& at, FakeSlot& slot);
  // Takes whole pages of `tokens` from the prefix cache. Returns the number of tokens taken.
  uint32_t TakeCached(FakeSlot& slot, std::span<const int32_t> tokens, double chance,
                      SeededRandom& random);
  // Computes one row, and keeps these states of it for the heads. PRECOND: HasRoom.
  void Append(FakeSlot& slot, int32_t token_id, uint32_t states);
  void TruncateTo(FakeSlot& slot, size_t length);
  void Close(const v1::SlotClose& close);

  // Returns the row that gives the next token's distribution.
  uint64_t LastRow(const FakeSlot& slot) const { return RowAt(slot, slot.tokens.size()); }
  void FillState(const v1::SlotPoint& at, v1::WorkerCode code, const std::string& message,
                 v1::SlotState* state) const;
  // ---- what the heads need of the rows: as KvCache keeps it

  // Whether the features of all rows are those that the heads read.
  bool HasFeatures(const FakeSlot& slot) const {
    return slot.pages.empty() || pages_->has_features(slot.pages.front());
  }
  // Returns how many first rows have what the heads compute, so far as slot and pages know.
  size_t NumHeadsRows(const FakeSlot& slot) const;
  // Lets the heads of this number compute rows up to `end`.
  void FillHeadsRows(FakeSlot& slot, size_t end, uint64_t heads);
  // Returns which row is missing, or not theirs, of those that a proposal of these heads reads, or
  // an empty text. `states`: what the heads read of the target.
  std::string CheckHeadsRows(const FakeSlot& slot, uint64_t heads, uint32_t states) const;

  // Injects a fault: slots lose rows, or get rows of other tokens.
  void LoseRows(uint32_t states, SeededRandom& random);

 private:
  uint64_t RowAt(const FakeSlot& slot, size_t length) const;
  // What row `row` keeps for the heads.
  FakeFeature& FeatureOf(const FakeSlot& slot, size_t row) const {
    return pages_->features(slot.pages[row / pages_->page_tokens()])[row % pages_->page_tokens()];
  }
  FakeHeadsRow& HeadsRowOf(const FakeSlot& slot, size_t row) const {
    return pages_->heads_rows(slot.pages[row / pages_->page_tokens()])[row % pages_->page_tokens()];
  }
  void MakePrivate(FakeSlot& slot);
  // Resets everything in a slot except the number of its last command.
  void Forget(FakeSlot& slot);

  FakePages* pages_;
  uint32_t* num_free_slots_;
  PlantedBug bug_;
  std::vector<FakeSlot> slots_;
};

}  // namespace tandem::simulator

#endif  // TANDEM_TESTS_SIMULATOR_WORKER_FAKE_SLOTS_H_
