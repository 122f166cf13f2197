#include "services/worker/slots/slot_table.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "common/log/log.h"
#include "common/log/trace_context.h"
#include "common/rpc/grpc_status.h"
#include "common/status.h"
#include "services/worker/slots/slot_open.h"

namespace tandem {
namespace {

void LogOpened(const v1::SlotPoint& at, const v1::SlotOpen& open) {
  if (!spdlog::should_log(spdlog::level::debug)) return;
  LogFields fields;
  fields.Add("slot", at.slot()).Add("epoch", at.slot_epoch());
  AddTrace(open.traceparent(), &fields);
  LogWith(spdlog::level::debug, fields, "slot opened");
}

}  // namespace

void Slot::Append(std::span<const int32_t> token_ids) {
  for (int32_t id : token_ids) {
    counts_.Add(id, tokens_.size() >= prompt_length_);
    hashes_.push_back(ExtendTokenHash(hashes_.back(), id));
    tokens_.push_back(id);
  }
}

absl::Status Slot::KeepPath(std::span<const int32_t> draft_token_ids,
                            std::span<const int32_t> path) {
  TANDEM_RETURN_IF_ERROR(cache_->KeepPath(length(), path));
  for (const int32_t node : path) Append(draft_token_ids.subspan(static_cast<size_t>(node), 1));
  return absl::OkStatus();
}

void Slot::TruncateTo(size_t length) {
  cache_->TruncateTo(length);
  TruncateBooks(length);
}

void Slot::TruncateBooks(size_t length) {
  while (tokens_.size() > length) {
    counts_.Remove(tokens_.back(), tokens_.size() > prompt_length_);
    tokens_.pop_back();
    hashes_.pop_back();
  }
  const size_t num_pages = length / kPageRows;
  page_keys_.resize(std::min(page_keys_.size(), num_pages + 1));
  num_published_ = std::min(num_published_, num_pages);
}

void Slot::Publish(size_t length) {
  const size_t num_pages = length / kPageRows;
  ComputePageKeys(num_pages);
  for (; num_published_ < num_pages; ++num_published_) {
    cache_->Publish(num_published_, page_keys_[num_published_ + 1]);
  }
}

absl::StatusOr<size_t> Slot::Extend(size_t length, const NewRows& rows) {
  const size_t num_tokens = rows.token_ids.size();
  std::vector<KvPage> found;
  if (!rows.needs_all_logits) {
    found = FindPages(length, rows.token_ids.first(num_tokens - (rows.needs_logits ? 1 : 0)));
  }
  const size_t num_found = found.size() * kPageRows;
  TANDEM_RETURN_IF_ERROR(
      cache_->Extend(length, std::move(found), num_tokens - num_found + rows.num_more));
  TruncateBooks(length);
  Append(rows.token_ids.first(num_found));
  return num_found;
}

std::vector<KvPage> Slot::FindPages(size_t length, std::span<const int32_t> token_ids) {
  std::vector<KvPage> found;
  if (length % kPageRows != 0 || token_ids.size() < kPageRows) return found;
  ComputePageKeys(length / kPageRows);
  KvPageKey key = page_keys_[length / kPageRows];
  for (; token_ids.size() >= kPageRows; token_ids = token_ids.subspan(kPageRows)) {
    key = NextPageKey(key, token_ids.first(kPageRows));
    KvPage page = cache_->pool().Find(key);
    if (!page) break;
    found.push_back(std::move(page));
  }
  return found;
}

void Slot::ComputePageKeys(size_t num_pages) {
  while (page_keys_.size() <= num_pages) {
    const size_t page = page_keys_.size() - 1;
    page_keys_.push_back(
        NextPageKey(page_keys_.back(), std::span(tokens_).subspan(page * kPageRows, kPageRows)));
  }
}

v1::SlotState SlotTable::State(const v1::SlotPoint& at, const Slot& slot) const {
  v1::SlotState state;
  state.set_slot(at.slot());
  state.set_slot_epoch(slot.epoch_);  // 0: no epoch was begun, so the router sends `open` again
  state.set_command_number(at.command_number());
  state.set_cached_len(static_cast<uint32_t>(slot.length()));
  state.set_prefix_hash(slot.prefix_hash());
  return state;
}

v1::SlotState SlotTable::Refusal(const v1::SlotPoint& at, v1::WorkerCode code,
                                 const std::string& message) const {
  v1::SlotState state = at.slot() < slots_.size() ? State(at, slots_[at.slot()]) : v1::SlotState();
  state.set_slot(at.slot());
  state.set_command_number(at.command_number());
  state.set_code(code);
  state.set_message("slot " + std::to_string(at.slot()) + ": " + message);
  return state;
}

SlotTable::Decision SlotTable::Check(const v1::SlotPoint& at, const v1::SlotOpen* open) {
  const auto refuse = [&](v1::WorkerCode code, const std::string& message) {
    return Decision{
        .action = Action::kRefuse, .slot = nullptr, .refusal = Refusal(at, code, message)};
  };
  if (at.slot() >= slots_.size()) {
    return refuse(v1::WORKER_CODE_INVALID_ARGUMENT,
                  "the session was attached with " + std::to_string(slots_.size()) + " slots");
  }
  if (at.command_number() == 0) {
    return refuse(v1::WORKER_CODE_INVALID_ARGUMENT, "command_number is 0, want 1 or more");
  }
  Slot& slot = slots_[at.slot()];
  if (slot.seen_ && at.slot_epoch() < slot.epoch_) {
    return refuse(v1::WORKER_CODE_ABORTED, "slot_epoch " + std::to_string(at.slot_epoch()) +
                                               " is over, the slot is in " +
                                               std::to_string(slot.epoch_));
  }
  const bool is_new_epoch = !slot.seen_ || at.slot_epoch() > slot.epoch_;
  if (!is_new_epoch && !slot.open_) {
    return refuse(v1::WORKER_CODE_ABORTED,
                  "slot_epoch " + std::to_string(at.slot_epoch()) + " was closed");
  }
  if (is_new_epoch) {
    if (open == nullptr) {
      return refuse(v1::WORKER_CODE_ABORTED, "slot_epoch " + std::to_string(at.slot_epoch()) +
                                                 " has not been opened (`open` is missing)");
    }
    if (at.command_number() <= slot.last_command_) {
      return refuse(v1::WORKER_CODE_INVALID_ARGUMENT,
                    "command_number " + std::to_string(at.command_number()) +
                        " opens a new epoch but is not newer than " +
                        std::to_string(slot.last_command_));
    }
    if (absl::Status status = Open(at, *open, slot); !status.ok()) {
      return refuse(ToWorkerCode(status.code()), std::string(status.message()));
    }
  } else if (at.command_number() <= slot.last_command_) {
    return Decision{.action = Action::kReplay, .slot = nullptr, .refusal = {}};
  }
  if (at.length() > slot.length()) {
    return refuse(v1::WORKER_CODE_ABORTED, "length " + std::to_string(at.length()) + ", holds " +
                                               std::to_string(slot.length()));
  }
  if (slot.hashes_[at.length()] != at.prefix_hash()) {
    return refuse(v1::WORKER_CODE_ABORTED,
                  "holds other tokens before " + std::to_string(at.length()));
  }
  return Decision{.action = Action::kExecute, .slot = &slot, .refusal = {}};
}

absl::Status SlotTable::Open(const v1::SlotPoint& at, const v1::SlotOpen& open, Slot& slot) {
  TANDEM_ASSIGN_OR_RETURN(SamplingParams params, FromSlotOpen(open, vocabulary_size_));
  if (slot.open_) {
    slot.TruncateTo(0);
  } else {
    TANDEM_ASSIGN_OR_RETURN(slot.cache_, pool_->Take());
  }
  slot.open_ = true;
  slot.seen_ = true;
  slot.epoch_ = at.slot_epoch();
  slot.params_ = std::move(params);
  slot.prompt_length_ = open.prompt_length();
  slot.page_keys_ = {FirstPageKey(open.cache_salt())};
  LogOpened(at, open);
  return absl::OkStatus();
}

void SlotTable::RollBack(const v1::SlotPoint& at, Slot& slot) {
  slot.TruncateTo(at.length());
  slot.last_command_ = at.command_number();
}

absl::StatusOr<size_t> SlotTable::Begin(const v1::SlotPoint& at, const NewRows& rows, Slot& slot) {
  TANDEM_ASSIGN_OR_RETURN(const size_t num_cached, slot.Extend(at.length(), rows));
  slot.last_command_ = at.command_number();
  return num_cached;
}

void SlotTable::Close(const v1::SlotClose& close) {
  if (close.slot() >= slots_.size()) return;
  Slot& slot = slots_[close.slot()];
  if (slot.seen_ && close.slot_epoch() < slot.epoch_) return;
  Slot closed;
  closed.seen_ = true;
  closed.epoch_ = close.slot_epoch();
  closed.last_command_ = slot.last_command_;
  slot = std::move(closed);
}

}  // namespace tandem
