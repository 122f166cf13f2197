#include "tests/simulator/worker/fake_slots.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::simulator {

FakeSlots::~FakeSlots() {
  if (bug_ == PlantedBug::kSlotsOutliveSession) return;
  for (FakeSlot& slot : slots_) Forget(slot);
}

void FakeSlots::Forget(FakeSlot& slot) {
  TruncateTo(slot, 0);
  *num_free_slots_ += slot.open ? 1 : 0;
  const uint64_t last_command = slot.last_command;
  slot = FakeSlot();
  slot.last_command = last_command;
}

uint64_t FakeSlots::RowAt(const FakeSlot& slot, size_t length) const {
  if (length == 0) return kEmptyTokenHash;
  const size_t row = length - 1;
  return pages_->rows(slot.pages[row / pages_->page_tokens()])[row % pages_->page_tokens()];
}

void FakeSlots::FillState(const v1::SlotPoint& at, v1::WorkerCode code, const std::string& message,
                          v1::SlotState* state) const {
  state->Clear();
  state->set_slot(at.slot());
  state->set_command_number(at.command_number());
  state->set_code(code);
  state->set_message(message);
  if (at.slot() >= slots_.size()) return;
  const FakeSlot& slot = slots_[at.slot()];
  state->set_slot_epoch(slot.epoch);
  state->set_cached_len(static_cast<uint32_t>(slot.tokens.size()));
  state->set_prefix_hash(slot.hashes.back());
}

FakeSlots::Verdict FakeSlots::Check(const v1::SlotPoint& at, const v1::SlotOpen* open,
                                    v1::SlotState* state) {
  const auto refuse = [&](v1::WorkerCode code, const std::string& message) {
    FillState(at, code, absl::StrCat("slot ", at.slot(), ": ", message), state);
    return Verdict::kRefuse;
  };
  if (at.slot() >= slots_.size()) return refuse(v1::WORKER_CODE_INVALID_ARGUMENT, "no such slot");
  if (at.command_number() == 0) return refuse(v1::WORKER_CODE_INVALID_ARGUMENT, "number is 0");
  FakeSlot& slot = slots_[at.slot()];
  const bool accepts_stale = bug_ == PlantedBug::kStaleEpochAccepted && slot.open;
  if (slot.seen && at.slot_epoch() < slot.epoch && !accepts_stale) {
    return refuse(v1::WORKER_CODE_ABORTED, absl::StrCat("epoch ", at.slot_epoch(), " is over"));
  }
  const bool is_new_epoch =
      !slot.seen || at.slot_epoch() > slot.epoch || at.slot_epoch() < slot.epoch;
  if (!is_new_epoch && !slot.open) return refuse(v1::WORKER_CODE_ABORTED, "epoch was closed");
  if (is_new_epoch) {
    if (open == nullptr) return refuse(v1::WORKER_CODE_ABORTED, "epoch was not opened");
    if (at.command_number() <= slot.last_command && !accepts_stale) {
      return refuse(v1::WORKER_CODE_INVALID_ARGUMENT, "opens an epoch with an old number");
    }
    if (!slot.open && *num_free_slots_ == 0) {
      return refuse(v1::WORKER_CODE_RESOURCE_EXHAUSTED, "no slot is free");
    }
    TruncateTo(slot, 0);
    *num_free_slots_ -= slot.open ? 0 : 1;
    slot.open = true;
    slot.seen = true;
    slot.epoch = at.slot_epoch();
    slot.request = *open;
    slot.wrong_row.reset();
  } else if (at.command_number() <= slot.last_command &&
             bug_ != PlantedBug::kStaleCommandExecuted) {
    return Verdict::kReplay;
  }
  if (at.length() > slot.tokens.size()) return refuse(v1::WORKER_CODE_ABORTED, "holds less");
  if (slot.hashes[at.length()] != at.prefix_hash() && bug_ != PlantedBug::kHashNotChecked) {
    return refuse(v1::WORKER_CODE_ABORTED, "holds other tokens");
  }
  return Verdict::kExecute;
}

bool FakeSlots::HasRoom(const FakeSlot& slot, uint32_t length, size_t rows) const {
  const uint32_t kept = pages_->PagesOf(length);
  uint32_t free = pages_->num_free();
  for (size_t i = kept; i < slot.pages.size(); ++i) {
    free += pages_->references(slot.pages[i]) == 1 ? 1 : 0;
  }
  const bool copies = length % pages_->page_tokens() != 0 && rows > length &&
                      pages_->references(slot.pages[kept - 1]) > 1;
  const uint32_t wanted = pages_->PagesOf(rows);
  return (wanted > kept ? wanted - kept : 0) + (copies ? 1 : 0) <= free;
}

void FakeSlots::Begin(const v1::SlotPoint& at, FakeSlot& slot) {
  if (bug_ == PlantedBug::kRollbackKeepsRow && at.length() < slot.tokens.size()) {
    slot.wrong_row = RowAt(slot, at.length() + 1);
  }
  if (bug_ == PlantedBug::kRollbackDropsRow && at.length() > 1 &&
      at.length() < slot.tokens.size()) {
    slot.wrong_row = RowAt(slot, at.length() - 1);
  }
  TruncateTo(slot, at.length());
  slot.last_command = at.command_number();
}

void FakeSlots::TruncateTo(FakeSlot& slot, size_t length) {
  const uint32_t kept = pages_->PagesOf(length);
  while (slot.pages.size() > kept) {
    pages_->Drop(slot.pages.back());
    slot.pages.pop_back();
  }
  if (length % pages_->page_tokens() != 0 && slot.pages.size() == kept &&
      pages_->references(slot.pages.back()) == 1 && !pages_->key(slot.pages.back()).has_value()) {
    pages_->SetHeadsRows(slot.pages.back(), false);
  }
  slot.num_heads_rows = std::min(slot.num_heads_rows, length);
  slot.tokens.resize(std::min(slot.tokens.size(), length));
  slot.hashes.resize(slot.tokens.size() + 1);
}

uint32_t FakeSlots::TakeCached(FakeSlot& slot, std::span<const int32_t> tokens, double chance,
                               SeededRandom& random) {
  const uint32_t page_tokens = pages_->page_tokens();
  uint32_t taken = 0;
  while (slot.tokens.size() % page_tokens == 0 && taken + page_tokens <= tokens.size()) {
    const std::span<const int32_t> next = tokens.subspan(taken, page_tokens);
    uint64_t hash = slot.hashes.back();
    for (int32_t id : next) hash = ExtendTokenHash(hash, id);
    std::optional<uint32_t> page = pages_->Find(slot.request.cache_salt(), hash);
    for (const auto& [key, id] : pages_->cache()) {
      if (bug_ == PlantedBug::kCacheHitOfOtherTokens) page = id;
      if (bug_ == PlantedBug::kCacheSaltIgnored && key.second == hash) page = id;
    }
    if (!page.has_value() || !random.Chance(chance)) break;
    pages_->Share(*page);
    slot.pages.push_back(*page);
    for (int32_t id : next) {
      slot.tokens.push_back(id);
      slot.hashes.push_back(ExtendTokenHash(slot.hashes.back(), id));
    }
    taken += page_tokens;
  }
  return taken;
}

void FakeSlots::MakePrivate(FakeSlot& slot) {
  uint32_t& page = slot.pages.back();
  if (pages_->references(page) == 1) {
    if (pages_->key(page).has_value()) pages_->SetHeadsRows(page, false);
    return pages_->Withdraw(page);
  }
  const uint32_t copy = pages_->Take();
  pages_->Copy(page, copy);
  pages_->Drop(page);
  page = copy;
}

void FakeSlots::Append(FakeSlot& slot, int32_t token_id, uint32_t states) {
  const uint64_t previous =
      slot.wrong_row.has_value() ? *slot.wrong_row : RowAt(slot, slot.tokens.size());
  slot.wrong_row.reset();
  const size_t place = slot.tokens.size() % pages_->page_tokens();
  if (place == 0) {
    slot.pages.push_back(pages_->Take());
  } else {
    MakePrivate(slot);
  }
  const uint64_t row = ExtendTokenHash(previous, token_id);
  pages_->rows(slot.pages.back())[place] = row;
  pages_->features(slot.pages.back())[place] = {states, row};
  slot.tokens.push_back(token_id);
  slot.hashes.push_back(ExtendTokenHash(slot.hashes.back(), token_id));
  if (place + 1 == pages_->page_tokens()) {
    pages_->Publish(slot.pages.back(), slot.request.cache_salt(), slot.hashes.back());
  }
}

void FakeSlots::Close(const v1::SlotClose& close) {
  if (close.slot() >= slots_.size()) return;
  FakeSlot& slot = slots_[close.slot()];
  if (slot.seen && close.slot_epoch() < slot.epoch) return;
  if (bug_ == PlantedBug::kPageLeakedOnCancel && slot.pages.size() > 1) slot.pages.pop_back();
  if (bug_ == PlantedBug::kPageFreedTwice && !slot.pages.empty()) {
    pages_->Drop(slot.pages.front());
  }
  Forget(slot);
  slot.seen = true;
  slot.epoch = close.slot_epoch();
}

size_t FakeSlots::NumHeadsRows(const FakeSlot& slot) const {
  const size_t page_tokens = pages_->page_tokens();
  size_t rows = slot.heads_version == pages_->heads_version() ? slot.num_heads_rows : 0;
  for (size_t page = rows / page_tokens; (page + 1) * page_tokens <= slot.tokens.size(); ++page) {
    if (!pages_->has_heads_rows(slot.pages[page])) break;
    rows = (page + 1) * page_tokens;
  }
  return std::min(rows, slot.tokens.size());
}

void FakeSlots::FillHeadsRows(FakeSlot& slot, size_t end, uint64_t heads) {
  for (size_t row = NumHeadsRows(slot); row < end; ++row) {
    // Row 0 has no feature before it.
    const FakeFeature before = row == 0 ? FakeFeature() : FeatureOf(slot, row - 1);
    HeadsRowOf(slot, row) = {heads, before, RowAt(slot, row + 1)};
  }
  for (size_t page = 0; (page + 1) * pages_->page_tokens() <= end; ++page) {
    pages_->SetHeadsRows(slot.pages[page], true);
  }
  slot.num_heads_rows = end;
  slot.heads_version = pages_->heads_version();
}

std::string FakeSlots::CheckHeadsRows(const FakeSlot& slot, uint64_t heads, uint32_t states) const {
  for (size_t row = 0; row < slot.tokens.size(); ++row) {
    const FakeHeadsRow& has = HeadsRowOf(slot, row);
    const FakeFeature before =
        row == 0 ? FakeFeature() : FakeFeature{.states = states, .row = RowAt(slot, row)};
    if (has == FakeHeadsRow{heads, before, RowAt(slot, row + 1)}) continue;
    return absl::StrCat("row ", row, " of ", slot.tokens.size(), " was computed by heads ",
                        has.heads, " from states ", has.before.states,
                        has.before.row == before.row ? "" : " of another row",
                        has.row == RowAt(slot, row + 1) ? "" : " for another token", "; heads ",
                        heads, " read states ", states);
  }
  return "";
}

void FakeSlots::LoseRows(uint32_t states, SeededRandom& random) {
  for (FakeSlot& slot : slots_) {
    if (!slot.open || slot.tokens.empty()) continue;
    switch (random.Between(0, 2)) {
      case 0:
        TruncateTo(slot, slot.tokens.size() / 2);
        break;
      case 1:  // everything but the number, as if the slot was never used
        Forget(slot);
        break;
      default: {  // the same number of rows with another first token
        std::vector<int32_t> tokens = slot.tokens;
        tokens[0] ^= 1;
        if (!HasRoom(slot, 0, tokens.size())) break;
        TruncateTo(slot, 0);
        for (int32_t id : tokens) Append(slot, id, states);
      }
    }
  }
}

}  // namespace tandem::simulator
