// Workers without a model. They follow the rules of worker.proto exactly, and choose tokens by a
// hash of the preceding tokens.
#ifndef TANDEM_TESTS_ROUTER_TOY_WORKERS_H_
#define TANDEM_TESTS_ROUTER_TOY_WORKERS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/rpc/protocol.h"
#include "common/token_hash.h"
#include "tandem/v1/worker.pb.h"

namespace tandem::testing {

// The parts that both toy models share.
struct ToyModel {
  int32_t vocabulary_size = 64;
  int percent_agreement = 70;  // how often the drafter agrees with the target
  int percent_end = 0;         // how often the target ends the text (last id)

  int32_t Target(uint64_t prefix_hash) const {
    const uint64_t z = ExtendTokenHash(prefix_hash, 12345);
    if (static_cast<int>(z % 100) < percent_end) return vocabulary_size - 1;
    return static_cast<int32_t>((z / 100) % static_cast<uint64_t>(vocabulary_size - 1));
  }
  int32_t Draft(uint64_t prefix_hash) const {
    const uint64_t z = ExtendTokenHash(prefix_hash, 54321);
    const int32_t target = Target(prefix_hash);
    if (static_cast<int>(z % 100) < percent_agreement) return target;
    return (target + 1) % vocabulary_size;
  }
};

// Records which sequence was written into each entry of the ring. The workers share it in memory.
struct ToyRing {
  uint64_t epoch = 0;
  v1::RingTransport transport = v1::RING_TRANSPORT_UNSPECIFIED;
  std::map<uint32_t, uint64_t> written;  // entry -> sequence
};

// One slot of a worker, according to the rules of SlotPoint.
struct ToySlot {
  uint32_t epoch = 0;
  uint64_t command_number = 0;
  std::vector<int32_t> tokens;  // tokens of the rows that the slot holds
  std::optional<v1::SlotOpen> open;
};

struct ToyOptions {
  uint32_t max_slots = 8;
  uint32_t max_context_tokens = 4096;
  uint32_t vocabulary_size = 64;
  std::string fingerprint;
  std::string numerics_id = "toy";
  std::string model_fingerprint = "weights";
  std::string boot_id = "host";
  std::string device_uuid;
  std::string pid_namespace = "pid:[1]";
  uint32_t protocol_version = kProtocolVersion;
  std::vector<v1::RingTransport> transports = {v1::RING_TRANSPORT_SHM, v1::RING_TRANSPORT_INLINE};
  std::vector<std::string> entries;  // entries of the drafter's vocabulary
  uint32_t page_tokens = 4;
  uint32_t num_pages = 0;    // 0: no limit
  std::string self_drafter;  // drafter that lives in the verifier; empty: none
};

// The parts that both workers share.
class ToyWorker {
 public:
  ToyWorker(const ToyModel& toy, ToyOptions toy_options)
      : model(toy), options(std::move(toy_options)) {}

  // Begins a new session, which holds nothing.
  void Reset() { slots.clear(); }

  v1::AttachReply Attached() const {
    v1::AttachReply reply;
    reply.set_protocol_version(options.protocol_version);
    reply.set_model(name);
    reply.set_backend("cpu");
    reply.set_numerics_id(options.numerics_id);
    reply.set_model_fingerprint(options.model_fingerprint);
    reply.set_vocabulary_size(options.vocabulary_size);
    reply.set_vocabulary_fingerprint(options.fingerprint);
    reply.set_max_context_tokens(options.max_context_tokens);
    reply.set_max_slots(options.max_slots);
    reply.set_boot_id(options.boot_id);
    reply.set_device_uuid(options.device_uuid);
    reply.set_pid_namespace(options.pid_namespace);
    for (v1::RingTransport transport : options.transports) reply.add_transports(transport);
    reply.set_page_tokens(options.page_tokens);
    reply.set_num_pages(options.num_pages);
    *reply.mutable_self_drafter() = SelfDrafter();
    return reply;
  }
  v1::SelfDrafter SelfDrafter() const {
    v1::SelfDrafter drafter;
    drafter.set_name(options.self_drafter);
    drafter.set_max_depth(options.self_drafter.empty() ? 0 : 4);
    drafter.set_heads(options.self_drafter);
    drafter.set_version(heads_version);
    drafter.set_is_first(heads.empty());
    return drafter;
  }

  uint32_t PagesOf(size_t rows) const {
    return static_cast<uint32_t>((rows + options.page_tokens - 1) / options.page_tokens);
  }
  uint32_t NumFreePages() const {
    uint32_t used = foreign_pages;
    for (const auto& [id, slot] : slots) used += PagesOf(slot.tokens.size());
    return options.num_pages > used ? options.num_pages - used : 0;
  }
  // Returns true if the slot can grow to this number of rows.
  bool HasRoom(const ToySlot& slot, size_t rows) const {
    return options.num_pages == 0 || PagesOf(rows) <= NumFreePages() + PagesOf(slot.tokens.size());
  }

  void UpdateSlots(const v1::UpdateSlots& update, v1::UpdateSlotsReply* reply) {
    for (const v1::SlotPoint& at : update.rollbacks()) {
      rollbacks.push_back(at);
      *reply->add_rollbacks() = Arrive(at, nullptr);
    }
    for (const v1::SlotClose& close : update.closes()) {
      const auto slot = slots.find(close.slot());
      if (slot != slots.end() && slot->second.epoch == close.slot_epoch()) slots.erase(slot);
    }
  }

  // Brings the slot to `at`. The state's code says whether that was possible.
  v1::SlotState Arrive(const v1::SlotPoint& at, const v1::SlotOpen* open) {
    ToySlot& slot = slots[at.slot()];
    if (at.slot() >= options.max_slots) {
      return State(at.slot(), v1::WORKER_CODE_RESOURCE_EXHAUSTED);
    }
    if (open != nullptr && !slot.open.has_value() &&
        slots.size() + foreign_slots > options.max_slots) {  // including this slot
      ++num_refused_opens;
      const v1::SlotState state = State(at.slot(), v1::WORKER_CODE_RESOURCE_EXHAUSTED);
      slots.erase(at.slot());
      return state;
    }
    if (at.slot_epoch() > slot.epoch && open != nullptr) {
      slot = ToySlot{at.slot_epoch(), slot.command_number, {}, *open};
    }
    if (at.slot_epoch() != slot.epoch || !slot.open.has_value() ||
        at.command_number() <= slot.command_number || at.length() > slot.tokens.size() ||
        at.prefix_hash() != HashTokens(std::span(slot.tokens).first(at.length()))) {
      return State(at.slot(), v1::WORKER_CODE_ABORTED);
    }
    slot.command_number = at.command_number();
    slot.tokens.resize(at.length());
    return State(at.slot(), v1::WORKER_CODE_OK);
  }

  v1::SlotState State(uint32_t id, v1::WorkerCode code) {
    const ToySlot& slot = slots[id];
    v1::SlotState state;
    state.set_slot(id);
    state.set_slot_epoch(slot.epoch);
    state.set_command_number(slot.command_number);
    state.set_code(code);
    state.set_cached_len(static_cast<uint32_t>(slot.tokens.size()));
    state.set_prefix_hash(HashTokens(slot.tokens));
    return state;
  }

  ToyModel model;
  ToyOptions options;
  std::string name;
  std::string heads;  // a verifier's, as of v1.SetHeads
  uint64_t heads_version = 0;
  std::map<uint32_t, ToySlot> slots;
  double compute_seconds = 0.001;
  double row_seconds = 0;                // additional seconds for each row
  uint32_t foreign_pages = 0;            // pages that other routers hold
  uint32_t foreign_slots = 0;            // slots of max_slots that other routers hold
  int num_refused_opens = 0;             // opens that found no slot
  size_t most_rows = 0;                  // most rows that any slot ever held
  std::vector<v1::SlotPoint> rollbacks;  // all rollbacks that the worker was told
};

class ToyDrafter : public ToyWorker {
 public:
  ToyDrafter(const ToyModel& toy, ToyOptions toy_options, ToyRing* shared)
      : ToyWorker(toy, std::move(toy_options)), ring(shared) {
    name = "toy-draft";
  }

  std::vector<v1::DraftReply> Handle(const v1::DraftCommand& command) {
    std::vector<v1::DraftReply> replies(1);
    v1::DraftReply& reply = replies.back();
    reply.set_id(command.id());
    switch (command.kind_case()) {
      case v1::DraftCommand::kAttach:
        *reply.mutable_attach() = Attached();
        break;
      case v1::DraftCommand::kOpenRing:
        if (refuse_ring == command.open_ring().transport()) {
          reply.mutable_error()->set_code(v1::WORKER_CODE_FAILED_PRECONDITION);
          reply.mutable_error()->set_message("cannot map it");
        } else {
          reply.mutable_open_ring()->set_nonce(
              command.open_ring().transport() == v1::RING_TRANSPORT_SHM ? 42 : 0);
        }
        break;
      case v1::DraftCommand::kReadVocabulary: {
        // Sends two chunks.
        const size_t half = options.entries.size() / 2;
        for (size_t i = 0; i < half; ++i)
          reply.mutable_vocabulary()->add_entries(options.entries[i]);
        v1::DraftReply rest;
        rest.set_id(command.id());
        rest.mutable_vocabulary()->set_first_id(static_cast<uint32_t>(half));
        for (size_t i = half; i < options.entries.size(); ++i) {
          rest.mutable_vocabulary()->add_entries(options.entries[i]);
        }
        rest.mutable_vocabulary()->set_last(true);
        replies.push_back(rest);
        break;
      }
      case v1::DraftCommand::kUpdateSlots:
        UpdateSlots(command.update_slots(), reply.mutable_update_slots());
        break;
      default: {
        ++num_proposes;
        const v1::Propose& propose = command.propose();
        v1::DraftReply proposed;
        proposed.set_id(command.id());
        proposed.mutable_propose()->set_compute_seconds(compute_seconds);
        UpdateSlots(propose.update_slots(), proposed.mutable_propose()->mutable_update_slots());
        replies.clear();
        for (const v1::ProposeItem& item : propose.items()) {
          *proposed.mutable_propose()->add_results() = DraftBlock(item, command.id(), &replies);
        }
        proposed.mutable_propose()->set_num_free_pages(NumFreePages());
        replies.push_back(proposed);
      }
    }
    return replies;
  }

  v1::ProposeResult DraftBlock(const v1::ProposeItem& item, uint64_t id,
                               std::vector<v1::DraftReply>* replies) {
    v1::ProposeResult result;
    *result.mutable_state() = Arrive(item.at(), item.has_open() ? &item.open() : nullptr);
    if (result.state().code() != v1::WORKER_CODE_OK) return result;
    ToySlot& slot = slots[item.at().slot()];
    if (!HasRoom(slot, slot.tokens.size() + static_cast<size_t>(item.token_ids_size()) +
                           item.draft_length())) {
      *result.mutable_state() = State(item.at().slot(), v1::WORKER_CODE_RESOURCE_EXHAUSTED);
      return result;
    }
    caught_up.push_back(item.token_ids_size());
    slot.tokens.insert(slot.tokens.end(), item.token_ids().begin(), item.token_ids().end());
    for (uint32_t i = 0; i < item.draft_length(); ++i) {
      if (i > 0) slot.tokens.push_back(result.draft_token_ids(static_cast<int>(i) - 1));
      if (slot.tokens.size() > options.max_context_tokens) break;
      result.add_draft_token_ids(model.Draft(HashTokens(slot.tokens)));
      if (non_finite) {
        result.clear_draft_token_ids();
        break;
      }
    }
    most_rows = std::max(most_rows, slot.tokens.size());
    if (item.has_ring() && result.draft_token_ids_size() > 0) {
      if (ring->transport == v1::RING_TRANSPORT_SHM) {
        ring->written[item.ring().entry()] = item.ring().sequence();
      } else {
        v1::DraftReply reply;
        reply.set_id(id);
        v1::LogProbChunk& chunk = *reply.mutable_log_prob_chunk();
        *chunk.mutable_ring() = item.ring();
        chunk.set_rows(static_cast<uint32_t>(result.draft_token_ids_size()));
        chunk.set_data(std::string(chunk.rows() * options.vocabulary_size * sizeof(float), '\0'));
        replies->push_back(std::move(reply));
      }
    }
    *result.mutable_state() = State(item.at().slot(), v1::WORKER_CODE_OK);
    return result;
  }

  ToyRing* ring;
  v1::RingTransport refuse_ring = v1::RING_TRANSPORT_UNSPECIFIED;
  bool non_finite = false;
  int num_proposes = 0;
  std::vector<int> caught_up;  // committed tokens of each item
};

class ToyVerifier : public ToyWorker {
 public:
  ToyVerifier(const ToyModel& toy, ToyOptions toy_options, ToyRing* shared)
      : ToyWorker(toy, std::move(toy_options)), ring(shared) {
    name = "toy-target";
  }

  // Returns nothing if the command has no reply.
  std::optional<v1::VerifierReply> Handle(const v1::VerifierCommand& command) {
    v1::VerifierReply reply;
    reply.set_id(command.id());
    switch (command.kind_case()) {
      case v1::VerifierCommand::kAttach:
        *reply.mutable_attach() = Attached();
        break;
      case v1::VerifierCommand::kCreateRing:
        if (refuse_ring == command.create_ring().transport()) {
          reply.mutable_error()->set_message("no memory");
          break;
        }
        ring->epoch = ++last_ring_epoch;
        ring->transport = command.create_ring().transport();
        ring->written.clear();
        num_entries = command.create_ring().entries();
        reply.mutable_create_ring()->set_ring_epoch(ring->epoch);
        break;
      case v1::VerifierCommand::kConfirmRing:
        if (command.confirm_ring().ring_epoch() != ring->epoch) {
          reply.mutable_error()->set_message("another ring");
        } else {
          reply.mutable_confirm_ring();
        }
        break;
      case v1::VerifierCommand::kLogProbChunk:
        ring->written[command.log_prob_chunk().ring().entry()] =
            command.log_prob_chunk().ring().sequence();
        return std::nullopt;
      case v1::VerifierCommand::kUpdateSlots:
        UpdateSlots(command.update_slots(), reply.mutable_update_slots());
        break;
      case v1::VerifierCommand::kSetHeads:
        SetHeads(command.set_heads().heads(), &reply);
        break;
      default:
        ++num_verifies;
        if (tells_heads) *reply.mutable_verify()->mutable_self_drafter() = SelfDrafter();
        tells_heads = false;
        UpdateSlots(command.verify().update_slots(),
                    reply.mutable_verify()->mutable_update_slots());
        reply.mutable_verify()->set_compute_seconds(compute_seconds);
        {
          size_t rows = 0;
          const int proposals_before = num_proposals;
          for (const v1::VerifyItem& item : command.verify().items()) {
            rows += static_cast<size_t>(item.token_ids_size() + item.draft_token_ids_size());
            *reply.mutable_verify()->add_results() = Judge(item);
          }
          most_batch_rows = std::max(most_batch_rows, rows);
          last_batch_rows = rows;
          reply.mutable_verify()->set_compute_seconds(compute_seconds +
                                                      static_cast<double>(rows) * row_seconds);
          if (num_proposals > proposals_before) {
            reply.mutable_verify()->set_propose_seconds(propose_seconds);
          }
          reply.mutable_verify()->set_num_free_pages(NumFreePages());
          reply.mutable_verify()->set_num_open_slots(static_cast<uint32_t>(slots.size()) +
                                                     foreign_slots);
        }
    }
    return reply;
  }

  // Loads heads when they were asked for more than `loads_before_heads` times.
  void SetHeads(const std::string& wanted, v1::VerifierReply* reply) {
    const bool is_known = wanted.empty() || loadable_heads.contains(wanted);
    if (!is_known) {
      reply->mutable_error()->set_message("there are no heads " + wanted);
      return;
    }
    if (heads != wanted && num_heads_asks++ >= loads_before_heads) {
      heads = wanted;
      ++heads_version;
      num_heads_asks = 0;
      if (!wanted.empty()) options.self_drafter = loadable_heads[wanted];
    }
    reply->mutable_set_heads()->set_loading(heads != wanted);
    *reply->mutable_set_heads()->mutable_self_drafter() = SelfDrafter();
  }

  v1::VerifyResult Judge(const v1::VerifyItem& item) {
    v1::VerifyResult result;
    *result.mutable_state() = Arrive(item.at(), item.has_open() ? &item.open() : nullptr);
    if (result.state().code() != v1::WORKER_CODE_OK) return result;
    ToySlot& slot = slots[item.at().slot()];
    const size_t rows = slot.tokens.size() + static_cast<size_t>(item.token_ids_size()) +
                        static_cast<size_t>(item.draft_token_ids_size());
    if (!HasRoom(slot, rows)) {
      ++num_refused;
      *result.mutable_state() = State(item.at().slot(), v1::WORKER_CODE_RESOURCE_EXHAUSTED);
      return result;
    }
    for (uint32_t i = 0; i < item.scores().num_rows(); ++i) {
      v1::TokenLogprobs* const score = result.add_prompt_logprobs();
      score->set_logprob(-static_cast<float>(slot.tokens.size() + i + 1));
      for (int32_t top = 0; top < slot.open->prompt_logprobs(); ++top) {
        score->add_top()->set_token_id(top);
      }
      ++num_scored;
    }
    slot.tokens.insert(slot.tokens.end(), item.token_ids().begin(), item.token_ids().end());
    most_rows = std::max(most_rows, rows);
    if (item.sample()) {
      std::vector<int32_t> drafts(item.draft_token_ids().begin(), item.draft_token_ids().end());
      const bool sampled = slot.open->sampling().temperature() > 0 && !slot.open->reproducible();
      if (!drafts.empty() && sampled && item.has_ring()) {  // without rows, the draft was found
        const auto entry = ring->written.find(item.ring().entry());
        if (item.ring().ring_epoch() != ring->epoch || entry == ring->written.end() ||
            entry->second != item.ring().sequence() || spoil_ring) {
          result.set_ring_error("sequence differs");
          drafts.clear();
        }
      }
      for (int32_t draft : drafts) {
        if (draft != model.Target(HashTokens(slot.tokens))) break;
        slot.tokens.push_back(draft);
        result.set_num_accepted(result.num_accepted() + 1);
      }
      result.set_next_token_id(model.Target(HashTokens(slot.tokens)));
      if (wrong_at != 0 && slot.tokens.size() == wrong_at && drafts.empty()) {
        result.set_next_token_id((result.next_token_id() + 1) % model.vocabulary_size);
      }
      if (item.has_propose()) *result.mutable_proposal() = Propose(item.propose(), slot, result);
      if (cannot_propose) result.clear_proposal();
      if (slot.open->sampling().has_logprobs()) {
        for (uint32_t i = 0; i <= result.num_accepted(); ++i) {
          result.add_logprobs()->set_logprob(
              -static_cast<float>(slot.tokens.size() - result.num_accepted() + i));
        }
      }
      if (non_finite_at != 0 && slot.tokens.size() >= non_finite_at) {
        *result.mutable_state() = State(item.at().slot(), v1::WORKER_CODE_NON_FINITE_LOGITS);
        return result;
      }
    }
    *result.mutable_state() = State(item.at().slot(), v1::WORKER_CODE_OK);
    return result;
  }

  // Returns a chain in which each token is the drafter's.
  v1::SelfProposal Propose(const v1::ProposalShape& shape, const ToySlot& slot,
                           const v1::VerifyResult& result) {
    ++num_proposals;
    v1::SelfProposal proposal;
    std::vector<int32_t> text = slot.tokens;
    text.push_back(result.next_token_id());
    for (uint32_t i = 0; i < shape.max_depth(); ++i) {
      text.push_back(model.Draft(HashTokens(text)));
      proposal.add_token_ids(text.back());
      proposal.add_chances(0.7f);
    }
    return proposal;
  }

  ToyRing* ring;
  v1::RingTransport refuse_ring = v1::RING_TRANSPORT_UNSPECIFIED;
  bool spoil_ring = false;
  size_t non_finite_at = 0;
  uint64_t last_ring_epoch = 0;
  uint32_t num_entries = 0;
  int num_verifies = 0;
  int num_proposals = 0;
  double propose_seconds = 0;                         // time of all proposals of a batch
  std::map<std::string, std::string> loadable_heads;  // drafters by the name of their heads
  int loads_before_heads = 0;  // times that heads are asked for before they are loaded
  int num_heads_asks = 0;
  bool tells_heads = false;     // the next verdict says which heads there are
  bool cannot_propose = false;  // the texts are older than the heads
  int num_refused = 0;          // items that found no page
  size_t num_scored = 0;        // prompt tokens that got log-probabilities
  size_t wrong_at = 0;          // number of tokens after which plain decoding gives another token
  size_t most_batch_rows = 0;
  size_t last_batch_rows = 0;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_ROUTER_TOY_WORKERS_H_
