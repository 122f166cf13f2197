// A router's books of a worker's session, for the targets that feed commands to the session.
#ifndef TANDEM_TESTS_FUZZ_SESSION_BOOKS_H_
#define TANDEM_TESTS_FUZZ_SESSION_BOOKS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/model/kv/kv_page_pool.h"
#include "common/rpc/protocol.h"
#include "common/token_hash.h"
#include "services/worker/worker_model.h"
#include "tandem/v1/worker.pb.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/parse.h"
#include "tests/support/random_heads.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace tandem::fuzz {

inline constexpr uint32_t kVocabularySize = 32;
inline constexpr uint32_t kSlots = 3;
inline constexpr uint32_t kRingEntries = 2;
inline constexpr size_t kHiddenSize = 8;
inline constexpr size_t kHeadSize = 4;

// The repairs that a command's byte asks the harness to make, so that inputs get past the checks
// that random bytes never pass. Fields without a repair go to the session unchanged.
enum Repair : uint8_t { kRepairPoints = 1, kRepairRings = 2, kRepairIds = 4, kRepairSizes = 8 };

// A model that is small enough for thousands of passes per second.
class SessionModel {
 public:
  SessionModel() {
    testing::WriteRandomModel(folder_ / "model", {.vocabulary_size = kVocabularySize,
                                                  .hidden_size = kHiddenSize,
                                                  .num_layers = 1,
                                                  .num_heads = 2,
                                                  .num_kv_heads = 1,
                                                  .head_size = kHeadSize,
                                                  .intermediate_size = 8,
                                                  .max_position_embeddings = 256});
    testing::WriteRandomHeads(folder_ / "heads",
                              {.hidden_size = kHiddenSize, .vocabulary_size = kVocabularySize});
    WorkerModelOptions options;
    options.folder = folder_ / "model";
    options.heads = folder_ / "heads";
    options.max_slots = kSlots;
    options.max_context = 4 * kPageRows;
    options.kv_cache_bytes = kNumPages * kPageBytes;
    auto model = WorkerModel::Load(options);
    Check(model.ok(), "the model loads: " + model.status().ToString());
    model_ = *std::move(model);
  }
  WorkerModel* get() { return model_.get(); }

  // Called between inputs, when no session is left.
  void CheckAllFree() const {
    const CachePool& caches = model_->caches();
    Check(caches.num_free() == caches.size(), "a session that ends gives its caches back");
    Check(caches.pages().num_pages() == kNumPages && caches.pages().num_free() == kNumPages,
          "a session that ends gives its pages back");
  }

 private:
  // The slots can fill more pages than this, so that pages run out.
  static constexpr size_t kNumPages = 7;
  static constexpr uint64_t kPageBytes = uint64_t{2} * kPageRows * kHeadSize * sizeof(float);

  testing::TempDir folder_;
  std::unique_ptr<WorkerModel> model_;
};

// Keeps the state that the session must have for each slot by the rules of worker.proto, and checks
// that its answers agree.
class SessionBooks {
 public:
  static void RepairAttach(v1::Attach* attach) {
    attach->set_protocol_version(kProtocolVersion);
    if (attach->max_slots() == 0) attach->set_max_slots(kSlots);
    if (attach->max_draft_length() == 0) attach->set_max_draft_length(4);
    if (attach->max_tree_nodes() == 0) attach->set_max_tree_nodes(8);
  }

  // Sets fields that are 0 to the next valid value. Without a hash, `length` is the number of rows
  // to drop.
  void RepairPoint(v1::SlotPoint* at) const {
    at->set_slot(at->slot() % kSlots);
    const SlotBook& slot = slots_[at->slot()];
    if (at->slot_epoch() == 0) at->set_slot_epoch(slot.epoch + (slot.open ? 0 : 1));
    if (at->command_number() == 0) at->set_command_number(slot.number + 1);
    if (at->prefix_hash() != 0) return;
    const size_t held = at->slot_epoch() == slot.epoch ? slot.tokens.size() : 0;
    const size_t length = held - std::min<size_t>(held, at->length());
    at->set_length(static_cast<uint32_t>(length));
    at->set_prefix_hash(HashTokens(std::span(slot.tokens).first(length)));
  }

  template <typename Item>
  void RepairItem(uint8_t repairs, Item* item) const {
    if ((repairs & kRepairPoints) != 0) {
      RepairPoint(item->mutable_at());
      const SlotBook& slot = slots_[item->at().slot()];
      if (item->at().slot_epoch() > slot.epoch) item->mutable_open();
      if (item->has_open() && item->open().lenience() == 0) item->mutable_open()->set_lenience(1);
    }
    if ((repairs & kRepairIds) != 0) {
      for (int32_t& id : *item->mutable_token_ids()) id = RepairedId(id);
    }
  }

  static int32_t RepairedId(int32_t id) {
    return static_cast<int32_t>(static_cast<uint32_t>(id) % kVocabularySize);
  }

  void RepairUpdate(uint8_t repairs, v1::UpdateSlots* update) const {
    if ((repairs & kRepairPoints) == 0) return;
    for (v1::SlotPoint& at : *update->mutable_rollbacks()) RepairPoint(&at);
    for (v1::SlotClose& close : *update->mutable_closes()) {
      close.set_slot(close.slot() % kSlots);
      if (close.slot_epoch() == 0) close.set_slot_epoch(slots_[close.slot()].epoch);
    }
  }

  void LearnUpdate(const v1::UpdateSlots& update, const v1::UpdateSlotsReply& reply) {
    Check(reply.rollbacks_size() == update.rollbacks_size(), "every rollback is answered");
    for (int i = 0; i < reply.rollbacks_size(); ++i) {
      Learn(update.rollbacks(i), reply.rollbacks(i), {}, true);
    }
    for (const v1::SlotClose& close : update.closes()) {
      if (close.slot() >= kSlots) continue;
      SlotBook& slot = slots_[close.slot()];
      if (close.slot_epoch() < slot.epoch) continue;
      slot.epoch = close.slot_epoch();
      slot.open = false;
      slot.tokens.clear();
    }
  }

  // Returns false for a repetition, which is answered with the stored result.
  bool IsNew(const v1::SlotPoint& at) const {
    if (at.slot() >= kSlots) return false;
    const SlotBook& slot = slots_[at.slot()];
    return at.command_number() > slot.number || at.slot_epoch() > slot.epoch;
  }

  // A batch executes one item per slot. It refuses later items for the slot, with a state between
  // the steps of the batch. Returns true for such a later item. Called once for each item, in
  // order, before Learn. `executed` holds the slots of the items before it.
  bool IsRepeatedInBatch(const v1::SlotPoint& at, const v1::SlotState& state,
                         std::set<uint32_t>* executed) const {
    if (executed->contains(at.slot())) return true;
    if (state.code() == v1::WORKER_CODE_OK && IsNew(at)) executed->insert(at.slot());
    return false;
  }

  // Called after a command to `at` that added `token_ids`. If `exactly` is true, all tokens were
  // kept. Otherwise, a first part of them was kept.
  void Learn(const v1::SlotPoint& at, const v1::SlotState& state,
             std::span<const int32_t> token_ids, bool exactly) {
    if (!IsNew(at)) return;
    SlotBook& slot = slots_[at.slot()];
    if (state.slot_epoch() > slot.epoch)
      slot = {.epoch = state.slot_epoch(), .number = slot.number};
    if (state.slot_epoch() != slot.epoch) return;
    if (state.code() == v1::WORKER_CODE_OK) {
      Check(at.length() <= slot.tokens.size(), "the rows before a command's own rows exist");
      slot.number = at.command_number();
      slot.open = true;
      slot.tokens.resize(at.length());
      slot.tokens.insert(slot.tokens.end(), token_ids.begin(), token_ids.end());
      Check(exactly ? state.cached_len() == slot.tokens.size()
                    : state.cached_len() <= slot.tokens.size(),
            "the session holds the rows that it was given");
    } else if (at.command_number() > slot.number && state.cached_len() <= slot.tokens.size()) {
      slot.number = at.command_number();
      slot.open = slot.open || state.slot_epoch() == at.slot_epoch();
    } else {
      return;
    }
    slot.tokens.resize(state.cached_len());
    Check(state.prefix_hash() == HashTokens(slot.tokens), "the hash is that of the rows held");
  }

 private:
  struct SlotBook {
    uint32_t epoch = 0;
    uint64_t number = 0;
    std::vector<int32_t> tokens = {};
    bool open = false;
  };
  std::array<SlotBook, kSlots> slots_;
};

// Calls handle(repairs, command) for each command. The input is a list of commands: for each, a
// byte (Repair) and a message (a chunk).
template <typename Command, typename Handle>
void ForEachCommand(FuzzInput input, const Handle& handle) {
  constexpr int kMaxCommands = 24;
  for (int i = 0; i < kMaxCommands && !input.empty(); ++i) {
    const uint8_t repairs = input.Byte();
    Command command;
    if (Parse(input.Chunk(), &command)) handle(repairs, &command);
  }
}

}  // namespace tandem::fuzz

#endif  // TANDEM_TESTS_FUZZ_SESSION_BOOKS_H_
