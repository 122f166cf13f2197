// The slots of a session, and the stored results that answer repeated commands.
#ifndef TANDEM_SERVICES_WORKER_SLOTS_SLOT_LEDGER_H_
#define TANDEM_SERVICES_WORKER_SLOTS_SLOT_LEDGER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rpc/grpc_status.h"
#include "common/status.h"
#include "services/worker/slots/slot_table.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// `Result` is v1::ProposeResult or v1::VerifyResult. A batch takes these steps:
//   BeginBatch();
//   for each item: slot = Admit(at, open, result). If `slot` is null, `result` is the answer.
//                  Otherwise check the item, then Execute(at, rows, slot). If either fails,
//                  Refuse(at, status, result); nothing has changed then;
//   compute;
//   for each executed item: Settle(at, slot, result).
template <typename Result>
class SlotLedger {
 public:
  SlotLedger(CachePool* pool, size_t vocabulary_size, uint32_t num_slots)
      : table_(pool, vocabulary_size, num_slots), last_results_(num_slots) {}

  void BeginBatch() { in_batch_.assign(last_results_.size(), false); }

  Slot* Admit(const v1::SlotPoint& at, const v1::SlotOpen* open, Result& result) {
    if (at.slot() < in_batch_.size() && in_batch_[at.slot()]) {
      Refuse(at, absl::InvalidArgumentError("is in this batch twice"), result);
      return nullptr;
    }
    SlotTable::Decision decision = table_.Check(at, open);
    switch (decision.action) {
      case SlotTable::Action::kExecute:
        break;
      case SlotTable::Action::kReplay:
        result = last_results_[at.slot()];
        break;
      case SlotTable::Action::kRefuse:
        *result.mutable_state() = std::move(decision.refusal);
        break;
    }
    return decision.slot;
  }

  void Refuse(const v1::SlotPoint& at, const absl::Status& status, Result& result) const {
    *result.mutable_state() =
        table_.Refusal(at, ToWorkerCode(status.code()), std::string(status.message()));
  }

  // See SlotTable::Begin.
  absl::StatusOr<size_t> Execute(const v1::SlotPoint& at, const NewRows& rows, Slot& slot) {
    TANDEM_ASSIGN_OR_RETURN(const size_t num_cached, table_.Begin(at, rows, slot));
    in_batch_[at.slot()] = true;
    return num_cached;
  }

  // Stores the result, which answers repetitions of the command. Adds the state of the slot, unless
  // the result already has a refusal.
  void Settle(const v1::SlotPoint& at, const Slot& slot, Result& result) {
    if (result.state().code() == v1::WORKER_CODE_OK) {
      *result.mutable_state() = table_.State(at, slot);
    }
    last_results_[at.slot()] = result;
  }

  void UpdateSlots(const v1::UpdateSlots& command, v1::UpdateSlotsReply& reply) {
    BeginBatch();
    for (const v1::SlotPoint& at : command.rollbacks()) {
      Result result;
      if (Slot* slot = Admit(at, nullptr, result); slot != nullptr) {
        table_.RollBack(at, *slot);
        Settle(at, *slot, result);
      }
      *reply.add_rollbacks() = std::move(*result.mutable_state());
    }
    for (const v1::SlotClose& close : command.closes()) table_.Close(close);
  }

 private:
  SlotTable table_;
  std::vector<Result> last_results_;  // [i]: result of the newest command to slot i
  std::vector<bool> in_batch_;        // [i]: an item of the batch was executed for slot i
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_SLOTS_SLOT_LEDGER_H_
