// One life of a worker process, with its sessions, slots, pages and ring. It follows worker.proto
// strictly.
#ifndef TANDEM_TESTS_SIMULATOR_WORKER_FAKE_WORKER_H_
#define TANDEM_TESTS_SIMULATOR_WORKER_FAKE_WORKER_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "proto/draft_tree.h"
#include "services/router/engine/engine_command.h"
#include "tests/simulator/scenario/planted_bug.h"
#include "tests/simulator/scenario/scenario.h"
#include "tests/simulator/scenario/seeded_random.h"
#include "tests/simulator/worker/fake_heads.h"
#include "tests/simulator/worker/fake_ring.h"
#include "tests/simulator/worker/fake_slots.h"

namespace tandem::simulator {

using WorkerCommand = std::variant<v1::DraftCommand, v1::VerifierCommand>;
using WorkerReply = std::variant<v1::DraftReply, v1::VerifierReply>;
using StreamId = uint64_t;

class FakeWorker {
 public:
  struct Execution {
    uint32_t slot;
    uint32_t epoch;
    uint64_t number;
  };
  // The outcome of a command.
  struct Outcome {
    std::vector<WorkerReply> replies;
    std::vector<Execution> executions;
    std::vector<std::string> complaints;  // violations of the protocol by the router
    int num_replays = 0;                  // items answered with a stored result
    bool ends_stream = false;
    std::string wrong_features;             // which rows no proposal may be made of
    int num_without_features = 0;           // texts that get no proposal, as they lack features
    int num_shared_features = 0;            // proposals from rows that were computed for others
    bool refuses_model = false;             // the model that a router named cannot be loaded
    bool is_wrong = false;                  // the reply is wrong on purpose
    const ClientPlan* killed_by = nullptr;  // request that kills the process
    uint32_t num_free_pages = 0;            // free pages that the reply states
    double seconds = 0;
  };

  // All pointers must outlive the worker.
  FakeWorker(Worker kind, const Scenario* scenario, const testing::ToyTokenizer* tokenizer,
             FakeRings* rings, PlantedBug bug, SeededRandom random);

  Outcome Handle(StreamId stream, const WorkerCommand& command);
  void EndStream(StreamId stream);

  void LoseRows() {
    for (auto& [id, session] : sessions_) {
      if (session.slots != nullptr) session.slots->LoseRows(heads_.stored_states(), random_);
    }
  }
  // As requests name a draft model.
  void set_model(const std::string& name) { model_ = name; }
  void set_other_vocabulary(bool other) { other_vocabulary_ = other; }
  bool spoils_ring() const { return spoils_ring_; }
  void set_spoils_ring(bool spoils) { spoils_ring_ = spoils; }

  // Returns null if the session is not attached.
  const FakeSlots* slots(StreamId stream) const {
    const auto found = sessions_.find(stream);
    return found == sessions_.end() ? nullptr : found->second.slots.get();
  }
  size_t num_open_slots() const;
  // Returns an error text if the pages do not match the slots, or an empty text.
  std::string CheckPages() const;
  const FakeHeads& heads() const { return heads_; }
  uint32_t num_free_pages() const { return pages_.num_free(); }

 private:
  struct Session {
    std::unique_ptr<FakeSlots> slots;
    std::vector<v1::ProposeResult> proposed;  // last results by slot
    std::vector<v1::VerifyResult> verified;
    DraftLimits limits;
    std::shared_ptr<FakeRing> ring;  // a drafter's
    // The verifier's rings, by number of the draft model.
    std::map<uint32_t, std::shared_ptr<FakeRing>> rings;
    v1::RingTransport transport = v1::RING_TRANSPORT_UNSPECIFIED;
    uint64_t ring_epoch = 0;
    uint64_t told_heads = 0;  // version of the heads that the router knows of
  };

  struct Refusal {
    v1::WorkerCode code = v1::WORKER_CODE_OK;
    std::string message;
  };

  Outcome HandleDraft(StreamId stream, const v1::DraftCommand& command);
  Outcome HandleVerifier(StreamId stream, const v1::VerifierCommand& command);
  v1::AttachReply Attached(const std::string& model) const;
  bool Attach(const v1::Attach& attach, Session& session, v1::WorkerError* error);
  // `last` holds the results with which repeated commands are answered.
  template <typename Result>
  void UpdateSlots(const v1::UpdateSlots& update, Session& session, std::vector<Result>& last,
                   v1::UpdateSlotsReply* reply, Outcome& outcome);
  template <typename Result>
  FakeSlot* Admit(const v1::SlotPoint& at, const v1::SlotOpen* open, Session& session,
                  std::vector<Result>& last, Result* result, Outcome& outcome);
  // Answers an item that is refused. Only a lack of room is no fault of the router.
  template <typename Result>
  static void Refuse(const v1::SlotPoint& at, const Refusal& refusal, const FakeSlots& slots,
                     Result* result, Outcome& outcome);
  void SendVocabulary(uint64_t id, Outcome& outcome) const;
  std::string OpenRing(const v1::OpenRing& command, Session& session, v1::OpenRingReply* reply);
  void Verify(const v1::Verify& verify, Session& session, v1::VerifyReply* reply, Outcome& outcome);
  void DropRing(uint32_t draft_model_number, Session& session);
  void CreateRing(const v1::CreateRing& create, Session& session, v1::CreateRingReply* reply);
  // The verifier's ring of this epoch. Null: the session has none.
  static FakeRing* RingOf(const Session& session, uint64_t epoch);
  // Draws the siblings of a whole chain. `prefixes[i]`: hash of the tokens before its token i.
  void AddSiblings(const v1::ProposeItem& item, std::span<const uint64_t> prefixes,
                   std::vector<FakeRow>* rows, v1::ProposeResult* result) const;
  v1::ProposeResult ProposeOne(const v1::ProposeItem& item, uint64_t id, Session& session,
                               Outcome& outcome);
  // Sends the rows of a draft block through the ring, or in one or two pieces beside the reply.
  void SendRows(const v1::RingReference& ring, uint64_t id, const std::vector<FakeRow>& rows,
                Session& session, Outcome& outcome);
  Refusal CheckItem(const v1::VerifyItem& item, const FakeSlot& slot, const Session& session) const;
  // The tokens that are judged. `parents` is empty for a chain. `q` has the rows of sampled drafts.
  struct Drafts {
    std::vector<int32_t> token_ids;
    std::vector<int32_t> parents;
    std::vector<FakeRow> q;
  };
  // Computes a row.
  void Append(FakeSlots& slots, FakeSlot& slot, int32_t token_id) const {
    slots.Append(slot, token_id, heads_.stored_states());
  }
  std::string SetHeads(const v1::SetHeads& wish, v1::SetHeadsReply* reply);
  // Accepts drafts and chooses the next token. Returns false if logits are not finite.
  bool Judge(const Drafts& drafts, FakeSlot& slot, FakeSlots& slots, v1::VerifyResult* result);
  // Computes the item's rows, and the log-probabilities that it asks for.
  void AppendScored(const v1::VerifyItem& item, FakeSlots& slots, FakeSlot& slot,
                    v1::VerifyResult* result) const;
  // Computes the rows of the text that the heads lack, as StepDrafter does. Returns whether they
  // can propose.
  bool PrepareHeads(FakeSlot& slot, FakeSlots& slots, Outcome& outcome) const;
  v1::SelfProposal ProposeAfter(const v1::ProposalShape& shape, uint64_t row,
                                int32_t next_token_id) const;
  // Puts a planted bug into the rows of a slot after a verdict. `before`: the rows before the last
  // accepted token, and before the one before that.
  void SpoilRows(const Drafts& drafts, int32_t last, std::array<uint64_t, 2> before,
                 const FakeSlots& slots, FakeSlot* slot) const;
  v1::VerifyResult VerifyOne(const v1::VerifyItem& item, Session& session, Outcome& outcome);
  std::string TakeBlock(const v1::VerifyItem& item, Session& session, std::vector<FakeRow>* rows);
  std::string AcceptChunk(const v1::LogProbChunk& chunk, Session& session);
  const ClientPlan& PlanOf(const FakeSlot& slot) const {
    return scenario_->clients[slot.request.sampling().seed() - 1];
  }
  uint32_t ReportedFreePages();

  Worker kind_;
  const Scenario* scenario_;
  const WorkerPlan* plan_;
  const testing::ToyTokenizer* tokenizer_;
  FakeRings* rings_;
  PlantedBug bug_;
  SeededRandom random_;
  FakePages pages_;
  uint32_t num_free_slots_;
  std::map<StreamId, Session> sessions_;
  std::string model_;
  FakeHeads heads_;  // a verifier's
  bool other_vocabulary_ = false;
  bool spoils_ring_ = false;
};

}  // namespace tandem::simulator

#endif  // TANDEM_TESTS_SIMULATOR_WORKER_FAKE_WORKER_H_
