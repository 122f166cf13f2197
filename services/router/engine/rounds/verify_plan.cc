#include "services/router/engine/rounds/verify_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/rpc/protocol.h"
#include "services/router/engine/rounds/round_state.h"

namespace tandem {
namespace {

// Slots of the cohort that take part, the oldest request first.
std::vector<uint32_t> SlotsByAge(const Slots& slots, uint32_t cohort) {
  std::vector<uint32_t> ids;
  for (uint32_t id = 0; id < slots.size(); ++id) {
    const RouterSlot& slot = slots[id];
    if (slot.sequence != nullptr && slot.cohort == cohort && !slots.IsWaiting(id)) {
      ids.push_back(id);
    }
  }
  std::sort(ids.begin(), ids.end(), [&](uint32_t a, uint32_t b) {
    return slots[a].sequence->order < slots[b].sequence->order;
  });
  return ids;
}

// Rows that the verifier may compute of the slot's sequence in one batch.
uint32_t RowsWanted(const Slots& slots, uint32_t id) {
  const Sequence& sequence = *slots[id].sequence;
  const uint32_t begin = slots.verifier().slot(id).cached_len;
  const uint32_t lack = sequence.num_rows_wanted() - begin;
  if (sequence.num_scores() == sequence.num_scores_wanted()) return lack;
  // Rows are scored from the first one that the client lacks the scores of. The rows before it are
  // computed as those of any prompt.
  return std::min(lack,
                  begin < sequence.num_scores() ? sequence.num_scores() - begin : kMaxScoredRows);
}

bool AnybodyDecodes(const Slots& slots) {
  for (uint32_t id = 0; id < slots.size(); ++id) {
    if (slots[id].sequence != nullptr && !slots.IsWaiting(id) &&
        slots.Lack(kVerifierPeer, id) == 1) {
      return true;
    }
  }
  return false;
}

// Rows that prompts may take beside the rows that decode: never less than a quarter of the batch,
// and no more than those that decode, in whichever cohort, can wait for.
uint32_t PromptRows(const EngineOptions& options, const Slots& slots, uint32_t decode_rows) {
  uint32_t rows = options.step_rows > decode_rows ? options.step_rows - decode_rows : 0;
  rows = std::max(rows, options.step_rows / 4);
  if (!AnybodyDecodes(slots)) return rows;
  return std::min(rows, RowsWithinStep(options, slots.verifier().row_seconds().value()));
}

// Shares the rows among the prompts of the plan, which all lack more than one token.
void SharePromptRows(const Slots& slots, uint32_t rows, uint32_t num_prompts,
                     std::vector<VerifyPlan>* plans) {
  for (VerifyPlan& plan : *plans) {
    if (plan.num_tokens == 1) continue;
    const uint32_t lack = plan.num_tokens;
    plan.num_tokens = std::min({lack, std::max(rows / num_prompts, kMinChunkRows), rows});
    --num_prompts;
    rows -= plan.num_tokens;
    if (plan.num_tokens == lack || !slots.verifier().pages().limited()) continue;
    // Whole pages, so that the prefix cache is asked for each.
    const uint32_t begin = slots.verifier().slot(plan.slot).cached_len;
    const uint32_t page = slots.verifier().pages().page_tokens();
    const uint32_t end = (begin + plan.num_tokens) / page * page;
    if (end > begin) plan.num_tokens = end - begin;
  }
  std::erase_if(*plans, [](const VerifyPlan& plan) { return plan.num_tokens == 0; });
}

// A verifier died while it computed this sequence, which may be the reason.
bool IsSuspect(const Sequence& sequence) { return sequence.faults.verifiers_lost() > 0; }

bool IsHarmless(const Sequence& sequence) {
  return !IsSuspect(sequence) && sequence.prompt_is_proven();
}

// Slots of the cohort that may be in one batch, the oldest request first (verify_plan.h).
std::vector<uint32_t> SlotsOfBatch(const Slots& slots, uint32_t cohort) {
  std::vector<uint32_t> ids = SlotsByAge(slots, cohort);
  const auto decides = std::find_if(ids.begin(), ids.end(),
                                    [&](uint32_t id) { return !IsHarmless(*slots[id].sequence); });
  if (decides == ids.end()) return ids;
  const uint32_t oldest = *decides;
  const bool is_suspect = IsSuspect(*slots[oldest].sequence);
  std::erase_if(ids, [&](uint32_t id) {
    const Sequence& sequence = *slots[id].sequence;
    if (IsHarmless(sequence)) return false;
    return is_suspect ? id != oldest : IsSuspect(sequence);
  });
  return ids;
}

}  // namespace

std::vector<VerifyPlan> PlanVerify(const EngineOptions& options, const Slots& slots,
                                   uint32_t cohort, std::span<const Proposal> proposals) {
  std::vector<VerifyPlan> plans;
  uint32_t decode_rows = 0;
  uint32_t num_prompts = 0;
  for (const uint32_t id : SlotsOfBatch(slots, cohort)) {
    const Sequence& sequence = *slots[id].sequence;
    VerifyPlan plan{id, RowsWanted(slots, id), 0};
    if (plan.num_tokens > 1) {
      ++num_prompts;
    } else {
      if (id < proposals.size() && proposals[id].serial == sequence.serial) {
        plan.num_drafted = static_cast<uint32_t>(proposals[id].token_ids.size());
      }
      decode_rows += 1 + plan.num_drafted;
    }
    plans.push_back(plan);
  }
  SharePromptRows(slots, PromptRows(options, slots, decode_rows), num_prompts, &plans);
  return plans;
}

ReservedPlan ReservePages(std::vector<VerifyPlan> plans, Slots* slots) {
  ReservedPlan reserved;
  const PageBudget& pages = slots->verifier().pages();
  if (!pages.limited()) {
    reserved.plans = std::move(plans);
    return reserved;
  }
  int64_t used = 0;
  for (VerifyPlan plan : plans) {
    RouterSlot& slot = (*slots)[plan.slot];
    if (slot.sequence == nullptr) continue;  // it gave its slot up for an older one
    const uint32_t held = slots->verifier().slot(plan.slot).cached_len;
    const auto need = [&] {
      return pages.PagesOf(held + plan.num_tokens + plan.num_drafted) - pages.PagesOf(held);
    };
    const auto lacks_pages = [&] { return need() > pages.num_free() - used; };
    while (lacks_pages()) {
      if (std::exchange(plan.num_drafted, 0) > 0) {
        slot.fallback = Fallback::kNoPages;
        continue;
      }
      const std::optional<uint32_t> youngest = slots->YoungestAfter(*slot.sequence);
      if (!youngest.has_value()) break;
      reserved.preempted.push_back(slots->Vacate(*youngest));
    }
    // The oldest is sent in any case: the worker knows better what is free.
    if (lacks_pages() && !reserved.plans.empty()) {
      if (IsSuspect(*slot.sequence)) reserved.preempted.push_back(slots->Vacate(plan.slot));
      continue;
    }
    used += need();
    reserved.plans.push_back(plan);
  }
  return reserved;
}

}  // namespace tandem
