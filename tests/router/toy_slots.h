// Slots with sequences that a test makes up. No worker is needed.
#ifndef TANDEM_TESTS_ROUTER_TOY_SLOTS_H_
#define TANDEM_TESTS_ROUTER_TOY_SLOTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/router/engine/rounds/proposal.h"
#include "services/router/engine/slots/slots.h"
#include "tests/router/toy_tokenizer.h"

namespace tandem::testing {

class ToySlots {
 public:
  static constexpr uint32_t kPageTokens = 4;

  // Owns the slots. All workers have a session, and their KV caches are not limited.
  explicit ToySlots(uint32_t num_slots, uint32_t num_drafters = 1)
      : own_(num_drafters), slots(own_) {
    slots.Resize(num_slots);
    for (PeerId peer = 0; peer < slots.num_peers(); ++peer) Attach(peer, 0);
  }
  // Makes sequences for somebody else's slots, whose workers have sessions of their own.
  explicit ToySlots(Slots& others) : slots(others) {}
  ToySlots(const ToySlots&) = delete;
  ToySlots& operator=(const ToySlots&) = delete;

  // A session of the worker begins. 0: its KV cache is not limited.
  void Attach(PeerId peer, uint32_t num_pages) {
    v1::AttachReply info;
    info.set_page_tokens(kPageTokens);
    info.set_num_pages(num_pages);
    slots.peer(peer).Attach(++last_session_, info);
  }

  // The same, and this number of pages is free.
  void LimitPages(PeerId peer, uint32_t num_free) {
    Attach(peer, 100);
    slots.peer(peer).pages().Reported(num_free);
  }

  // A greedy request with a prompt of this length.
  static GenerationRequest Request(uint32_t prompt_len, int max_tokens = 100) {
    GenerationRequest request;
    for (uint32_t i = 0; i < prompt_len; ++i) {
      request.prompt_token_ids.push_back(static_cast<int32_t>(i * 7 % 60));
    }
    request.max_tokens = max_tokens;
    request.open.mutable_sampling()->set_temperature(0);
    request.open.set_lenience(1);
    return request;
  }

  // A new sequence. The first one is the oldest.
  std::unique_ptr<Sequence> Make(GenerationRequest request, bool is_replay = false) {
    const CallId call = ++last_call_;
    request.request_id = std::to_string(call);
    auto sequence = std::make_unique<Sequence>(call, std::move(request), 0, &tokenizer_);
    sequence->order = call;
    const size_t num_models = slots.num_peers() - kDrafterPeer;
    sequence->models.emplace(std::vector(num_models, AcceptanceEstimate(&prior_)),
                             std::vector(num_models, TrialSchedule(&trial_prior_)));
    if (is_replay) sequence->expected = {1, 2, 3};
    return sequence;
  }
  // A new sequence takes the first free slot, which is returned.
  uint32_t Add(GenerationRequest request, bool is_replay = false, size_t num_cohorts = 1) {
    const uint32_t id = *slots.FreeSlot();
    slots.Occupy(id, Make(std::move(request), is_replay), num_cohorts);
    return id;
  }
  uint32_t Add(uint32_t prompt_len) { return Add(Request(prompt_len)); }
  // The same, and the verifier lacks the pending token alone.
  uint32_t AddDecoding(GenerationRequest request, bool is_replay = false, size_t num_cohorts = 1) {
    const uint32_t id = Add(std::move(request), is_replay, num_cohorts);
    Sequence& sequence = *slots[id].sequence;
    sequence.furthest_len = sequence.committed_len();  // a verifier has computed the prompt before
    Hold(kVerifierPeer, id, sequence.committed_len() - 1);
    return id;
  }
  uint32_t AddDecoding(uint32_t num_tokens) { return AddDecoding(Request(num_tokens)); }

  // The worker holds rows of committed tokens, and further rows of draft tokens.
  void Hold(PeerId peer, uint32_t id, uint32_t num_rows, uint32_t num_extra_rows = 0) {
    slots.peer(peer).Open(id);
    slots.peer(peer).Hold(id, num_rows, num_rows + num_extra_rows);
  }

  Sequence& sequence(uint32_t id) { return *slots[id].sequence; }
  // A draft for the sequence in the slot.
  Proposal Draft(uint32_t id, size_t num_tokens) {
    Proposal proposal;
    proposal.serial = slots[id].sequence->serial;
    proposal.token_ids.assign(num_tokens, 5);
    return proposal;
  }

 private:
  CallId last_call_ = 0;
  SessionId last_session_ = 0;
  ToyTokenizer tokenizer_ = ToyTokenizer::OfSize(64);
  AcceptancePrior prior_;
  TrialPrior trial_prior_;
  Slots own_;  // its sequences use the members above

 public:
  Slots& slots;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_ROUTER_TOY_SLOTS_H_
