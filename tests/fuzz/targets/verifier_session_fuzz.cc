// Feeds a router's commands, with pieces of q rows, to the verifier's session. session_books.h says
// what an input is.
#include <algorithm>
#include <cmath>

#include "proto/draft_tree.h"
#include "proto/worker_replies.h"
#include "services/verifier/verifier_session.h"
#include "tests/fuzz/session_books.h"

namespace tandem::fuzz {
namespace {

// Returns `rows` rows that give each token the same probability. The ring's checks accept them.
std::string UniformRows(size_t rows) {
  const std::vector<float> values(rows * kVocabularySize,
                                  -std::log(static_cast<float>(kVocabularySize)));
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

class VerifierFuzzer {
 public:
  VerifierFuzzer(WorkerModel* model, VerifierShared* shared) : session_(model, nullptr, shared) {}

  void Run(uint8_t repairs, v1::VerifierCommand* command) {
    Mend(repairs, command);
    std::vector<v1::VerifierReply> replies;
    const absl::Status status = session_.Handle(
        *command, [&](v1::VerifierReply reply) { replies.push_back(std::move(reply)); });
    for (const v1::VerifierReply& reply : replies) {
      Check(reply.id() == command->id(), "answers have the command's id");
    }
    if (!status.ok() || replies.empty()) return;
    const v1::VerifierReply& reply = replies.back();
    if (reply.has_create_ring()) {
      ring_epoch_ = reply.create_ring().ring_epoch();
      ring_sequence_ = 0;
    }
    if (reply.has_verify()) Learn(command->verify(), reply.verify());
    if (reply.has_update_slots()) {
      books_.LearnUpdate(command->update_slots(), reply.update_slots());
    }
  }

 private:
  void MendRing(v1::RingReference* ring) const {
    ring->set_ring_epoch(ring_epoch_);
    ring->set_entry(ring->entry() % kRingEntries);
    if (ring->sequence() == 0) ring->set_sequence(ring_sequence_);
  }

  void Mend(uint8_t repairs, v1::VerifierCommand* command) {
    switch (command->kind_case()) {
      case v1::VerifierCommand::kAttach:
        if ((repairs & kRepairSizes) != 0) SessionBooks::RepairAttach(command->mutable_attach());
        break;
      case v1::VerifierCommand::kCreateRing: {
        v1::CreateRing* create = command->mutable_create_ring();
        if ((repairs & kRepairSizes) == 0) break;
        create->set_transport(v1::RING_TRANSPORT_INLINE);
        create->set_entries(kRingEntries);
        create->set_rows_per_entry(kMaxDraftLength);
        create->set_vocabulary_size(kVocabularySize);
        break;
      }
      case v1::VerifierCommand::kConfirmRing:
        if ((repairs & kRepairRings) != 0) {
          command->mutable_confirm_ring()->set_ring_epoch(ring_epoch_);
        }
        break;
      case v1::VerifierCommand::kLogProbChunk: {
        v1::LogProbChunk* chunk = command->mutable_log_prob_chunk();
        if ((repairs & kRepairRings) == 0) break;
        if (chunk->offset_bytes() == 0) ++ring_sequence_;
        MendRing(chunk->mutable_ring());
        chunk->set_rows(1 + chunk->rows() % kMaxDraftLength);
        if (chunk->data().empty()) chunk->set_data(UniformRows(chunk->rows()));
        break;
      }
      case v1::VerifierCommand::kVerify:
        books_.RepairUpdate(repairs, command->mutable_verify()->mutable_update_slots());
        for (v1::VerifyItem& item : *command->mutable_verify()->mutable_items()) {
          books_.RepairItem(repairs, &item);
          if ((repairs & kRepairIds) != 0) {
            for (int32_t& id : *item.mutable_draft_token_ids()) id = SessionBooks::RepairedId(id);
            MendTree(&item);
          }
          if ((repairs & kRepairRings) != 0) MendRing(item.mutable_ring());
        }
        break;
      case v1::VerifierCommand::kUpdateSlots:
        books_.RepairUpdate(repairs, command->mutable_update_slots());
        break;
      default:
        break;
    }
  }

  // Gives each draft token an earlier one, or none, as its parent.
  static void MendTree(v1::VerifyItem* item) {
    if (item->parents().empty()) return;
    const int num_tokens = item->draft_token_ids_size();
    item->mutable_parents()->Truncate(std::min(item->parents_size(), num_tokens));
    while (item->parents_size() < num_tokens) item->add_parents(-1);
    for (int i = 0; i < num_tokens; ++i) {
      const int32_t parent = item->parents(i);
      item->set_parents(i, parent < 0 ? -1 : parent % (i + 1) - 1);
    }
  }

  // The router's rules accept the proposal.
  static void CheckProposal(const v1::VerifyItem& item, const v1::VerifyResult& result) {
    Check(item.has_propose(), "only what was asked for is proposed");
    const SentVerify sent = {
        .sample = true,
        .proposal_limits = DraftLimits{item.propose().max_depth(), item.propose().max_nodes()}};
    v1::VerifyResult alone;
    *alone.mutable_proposal() = result.proposal();
    const absl::Status valid = CheckVerifyResult(sent, alone, kVocabularySize);
    Check(valid.ok(), "a proposal follows the rules: " + valid.ToString());
  }

  void Learn(const v1::Verify& verify, const v1::VerifyReply& reply) {
    if (verify.has_update_slots()) {
      books_.LearnUpdate(verify.update_slots(), reply.update_slots());
    }
    Check(reply.results_size() == verify.items_size(), "every item has a result");
    std::set<uint32_t> executed;
    for (int i = 0; i < verify.items_size(); ++i) {
      const v1::VerifyItem& item = verify.items(i);
      const v1::VerifyResult& result = reply.results(i);
      if (books_.IsRepeatedInBatch(item.at(), result.state(), &executed)) continue;
      const bool is_new = books_.IsNew(item.at());
      std::vector<int32_t> fed(item.token_ids().begin(), item.token_ids().end());
      if (is_new && result.has_proposal()) CheckProposal(item, result);
      if (is_new && result.state().code() == v1::WORKER_CODE_OK) {
        Check(result.num_accepted() <= static_cast<uint32_t>(item.draft_token_ids_size()),
              "only drafted tokens are accepted");
        Check(!item.sample() || (result.next_token_id() >= 0 &&
                                 static_cast<uint32_t>(result.next_token_id()) < kVocabularySize),
              "the next token is of the vocabulary");
        const std::span path(result.path().data(), static_cast<size_t>(result.path_size()));
        const std::span parents(item.parents().data(), static_cast<size_t>(item.parents_size()));
        Check(path.size() == (parents.empty() ? 0 : result.num_accepted()) &&
                  IsPathOfDraft(parents, static_cast<size_t>(item.draft_token_ids_size()), path),
              "the accepted tokens are a path");
        for (uint32_t step = 0; step < result.num_accepted(); ++step) {
          fed.push_back(
              item.draft_token_ids(static_cast<int>(parents.empty() ? step : path[step])));
        }
      }
      books_.Learn(item.at(), result.state(), fed, true);
    }
  }

  VerifierSession session_;
  SessionBooks books_;
  uint64_t ring_epoch_ = 0;
  uint64_t ring_sequence_ = 0;
};

}  // namespace
}  // namespace tandem::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  static fuzz::SessionModel model;
  static VerifierShared shared(model.get());
  {
    fuzz::VerifierFuzzer fuzzer(model.get(), &shared);
    fuzz::ForEachCommand<v1::VerifierCommand>(
        fuzz::FuzzInput(data, size),
        [&](uint8_t repairs, v1::VerifierCommand* command) { fuzzer.Run(repairs, command); });
  }
  model.CheckAllFree();
  return 0;
}
