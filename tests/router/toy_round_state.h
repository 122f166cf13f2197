// The state of a pod's rounds, for tests of one step of a round. Toy workers are attached to it.
#ifndef TANDEM_TESTS_ROUTER_TOY_ROUND_STATE_H_
#define TANDEM_TESTS_ROUTER_TOY_ROUND_STATE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <variant>

#include "services/router/engine/rounds/round_state.h"
#include "tests/router/toy_slots.h"
#include "tests/router/toy_tokenizer.h"
#include "tests/router/toy_workers.h"

namespace tandem::testing {

// The sessions of the workers are real ones. After they attached, no worker is asked any more: a
// test says what the workers hold and answer.
struct ToyRoundState {
  explicit ToyRoundState(uint32_t num_slots, const EngineOptions& options = {},
                         EngineObserver* observer = NobodyObserves())
      : state(options, &tokenizer, observer, &audit), toy(state.slots) {
    state.slots.Resize(num_slots);
  }
  ToyRoundState(const ToyRoundState&) = delete;
  ToyRoundState& operator=(const ToyRoundState&) = delete;

  // Both workers attach with this number of pages. 0: their KV caches are not limited.
  void AttachWorkers(uint32_t num_pages = 0) {
    ToyOptions options;
    options.fingerprint = tokenizer.FingerprintBytes();
    options.page_tokens = ToySlots::kPageTokens;
    options.num_pages = num_pages;
    ToyRing ring;
    ToyVerifier verifier(ToyModel(), options, &ring);
    ToyDrafter drafter(ToyModel(), options, &ring);
    drafter.options.entries = tokenizer.entries();
    state.workers.Start(1);
    while (!state.out.commands.empty()) {
      for (const EngineCommand& command : std::exchange(state.out.commands, {})) {
        Answer(command, &verifier, &drafter);
      }
    }
    for (const SessionEvent& event : state.workers.TakeEvents()) {
      state.slots.peer(event.peer).Attach(event.session, *state.workers.info(event.peer));
    }
    EXPECT_TRUE(state.workers.ready(kVerifierPeer));
    EXPECT_TRUE(state.workers.ready(kDrafterPeer));
  }

  ToyTokenizer tokenizer = ToyTokenizer::OfSize(64);
  AuditMonitor audit;
  RoundState state;
  ToySlots toy;  // makes the sequences in `state`, which do not use it any more when they end

 private:
  void Answer(const EngineCommand& command, ToyVerifier* verifier, ToyDrafter* drafter) {
    if (const auto* to_verifier = std::get_if<SendToVerifier>(&command)) {
      auto reply = verifier->Handle(to_verifier->command);
      if (reply.has_value()) state.workers.OnVerifierReply(to_verifier->session, *reply, 1);
    } else if (const auto* to_drafter = std::get_if<SendToDrafter>(&command)) {
      for (const v1::DraftReply& reply : drafter->Handle(to_drafter->command)) {
        state.workers.OnDraftReply(to_drafter->session, reply, 1);
      }
    }
  }
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_ROUTER_TOY_ROUND_STATE_H_
