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

// Books (tokens, hashes) beside rows (in pages): where a bug lets them part, the model goes on from
// the rows, and what comes out is wrong.
struct FakeSlot {
  bool seen = false;
  bool open = false;
  uint32_t epoch = 0;         // newest seen; 0: none yet
  uint64_t last_command = 0;  // newest executed; outlives epochs
  v1::SlotOpen request;
  std::vector<int32_t> tokens;
  std::vector<uint64_t> hashes = {kEmptyTokenHash};  // [n]: of the first n tokens
  std::vector<uint32_t> pages;
  std::optional<uint64_t> wrong_row;  // planted: what the next row follows instead of the last
};

class FakeSlots {
 public:
  enum class Verdict : uint8_t { kExecute, kReplay, kRefuse };

  // `num_free_slots`: of the worker, for all its sessions together.
  FakeSlots(FakePages* pages, uint32_t* num_free_slots, uint32_t num_slots, PlantedBug bug)
      : pages_(pages), num_free_slots_(num_free_slots), bug_(bug), slots_(num_slots) {}
  FakeSlots(const FakeSlots&) = delete;
  FakeSlots& operator=(const FakeSlots&) = delete;
  ~FakeSlots();

  std::vector<FakeSlot>& slots() { return slots_; }
  const std::vector<FakeSlot>& slots() const { return slots_; }

  // What to do with a command; kRefuse fills `state`. A newer epoch is begun here.
  Verdict Check(const v1::SlotPoint& at, const v1::SlotOpen* open, v1::SlotState* state);
  // Whether there are pages for `rows` rows once the slot was rolled back to `length`.
  bool HasRoom(const FakeSlot& slot, uint32_t length, size_t rows) const;
  // Rolls back and takes the number. PRECOND: Check said kExecute.
  void Begin(const v1::SlotPoint& at, FakeSlot& slot);
  // Takes whole pages of `tokens` from the prefix cache; how many tokens that were.
  uint32_t TakeCached(FakeSlot& slot, std::span<const int32_t> tokens, double chance,
                      SeededRandom& random);
  // Computes one row. PRECOND: HasRoom.
  void Append(FakeSlot& slot, int32_t token_id);
  void TruncateTo(FakeSlot& slot, size_t length);
  void Close(const v1::SlotClose& close);

  // The row that the next token's distribution comes from.
  uint64_t LastRow(const FakeSlot& slot) const { return RowAt(slot, slot.tokens.size()); }
  void FillState(const v1::SlotPoint& at, v1::WorkerCode code, const std::string& message,
                 v1::SlotState* state) const;
  // A fault: rows are lost, or are of other tokens.
  void LoseRows(SeededRandom& random);

 private:
  uint64_t RowAt(const FakeSlot& slot, size_t length) const;
  void MakePrivate(FakeSlot& slot);
  // Back to a slot that was never used, but for the numbers of its commands.
  void Forget(FakeSlot& slot);

  FakePages* pages_;
  uint32_t* num_free_slots_;
  PlantedBug bug_;
  std::vector<FakeSlot> slots_;
};

}  // namespace tandem::simulator

#endif  // TANDEM_TESTS_SIMULATOR_WORKER_FAKE_SLOTS_H_
