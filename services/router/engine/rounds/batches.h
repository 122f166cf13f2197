// The batches that a pod's workers have under way, and the cohorts of slots that wait for them.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_BATCHES_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_BATCHES_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/worker_replies.h"
#include "services/router/engine/engine_command.h"
#include "services/router/engine/engine_observer.h"
#include "services/router/engine/rounds/proposal.h"
#include "services/router/engine/sequence.h"

namespace tandem {

// What both kinds of batches have in common. Times are seconds on the router's clock.
struct Batch {
  uint32_t cohort = 0;
  uint64_t id = 0;  // the command's
  SessionId session = 0;
  double begun_at = 0;    // time of the event that the batch follows from
  double sent_at = 0;     // time at which the command was handed over to the stream
  bool sent = false;      // whether it was
  double idle_since = 0;  // since when the worker says that it computes nothing; 0: it does not
  uint32_t rows = 0;      // rows of committed tokens; a Verify counts rows of drafts too
};

struct ProposeBatch : Batch {
  struct Item : SentPropose {
    uint64_t serial = 0;
    bool broke_rule = false;  // whether the answer to this item did
  };
  PeerId peer = kDrafterPeer;      // the draft model that is asked
  SessionId verifier_session = 0;  // session whose ring takes the log-probs
  std::vector<Item> items;
};

struct VerifyBatch : Batch {
  struct Item : SentVerify {
    uint64_t serial = 0;
    Proposal proposal;
    // Tokens that plain decoding would have given in the time of the slot's round with its draft,
    // once it was judged (PricesOf). 0: the costs are not known, or there is no draft.
    double plain_tokens = 0;
    // For the case that the request is canceled before the verifier answers, or dies.
    PromptWitness witness;
  };
  uint32_t prompt_rows = 0;
  double attended = 0;  // positions that the rows attend to, summed over all rows
  std::vector<Item> items;
};

// What a Propose batch does for one slot.
struct ProposePlan {
  uint32_t slot = 0;
  uint64_t serial = 0;                      // life of the slot that it was made for
  uint32_t begin = 0;                       // rows of committed tokens that the drafter has
  uint32_t num_tokens = 0;                  // committed tokens that are sent, from there on
  uint32_t draft_length = 0;                // 0: the drafter only catches up
  std::vector<uint32_t> num_siblings = {};  // as in ProposeItem
};

// A Propose batch that is sent once another draft model has answered.
struct WaitingPropose {
  PeerId peer = kDrafterPeer;
  SessionId session = 0;  // the drafter's when it was planned
  std::vector<ProposePlan> plans;
};

// Slots that go through their rounds together.
struct Cohort {
  enum class Stage : uint8_t { kIdle, kSearching, kProposing, kProposed, kVerifying };
  Stage stage = Stage::kIdle;
  std::vector<Proposal> proposals;      // by slot, once kProposed
  RoundSeconds round;                   // what the Propose of this round took; zero without one
  double round_begun_at = 0;            // time at which the first Propose of the round began
  std::vector<WaitingPropose> waiting;  // batches of this round; the last one is next
  uint64_t search = 0;                  // id of the SearchCorpus that has no answer yet; 0: none
  double search_until = 0;              // the answer is awaited until then, or came then
  uint32_t num_decoding = 1;            // its slots that decode in this round, and at least one
  double plain_seconds = 0;             // time of a round of these without drafts; 0: not known yet
  // Seconds of this round that passed before its Verify, by draft model and for the corpus.
  std::array<double, kMaxDraftModels> propose_seconds = {};
  std::array<std::string, kMaxDraftModels> propose_models;  // the names that they had then
  double search_begun_at = 0;
  double search_seconds = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_ROUNDS_BATCHES_H_
