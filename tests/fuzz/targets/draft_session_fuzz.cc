// Feeds a router's commands to the drafter's session. session_books.h says what an input is.
#include "services/draft/drafter_session.h"
#include "tests/fuzz/session_books.h"

namespace tandem::fuzz {
namespace {

class DraftFuzzer {
 public:
  explicit DraftFuzzer(WorkerModel* model) : session_(model) {}

  void Run(uint8_t repairs, v1::DraftCommand* command) {
    Mend(repairs, command);
    std::vector<v1::DraftReply> replies;
    const absl::Status status = session_.Handle(
        *command, [&](v1::DraftReply reply) { replies.push_back(std::move(reply)); });
    Check(!replies.empty(), "every command is answered");
    for (const v1::DraftReply& reply : replies) {
      Check(reply.id() == command->id(), "answers have the command's id");
    }
    if (!status.ok()) return;
    const v1::DraftReply& reply = replies.back();
    if (reply.has_propose()) Learn(command->propose(), reply.propose());
    if (reply.has_update_slots()) {
      books_.LearnUpdate(command->update_slots(), reply.update_slots());
    }
  }

 private:
  void Mend(uint8_t repairs, v1::DraftCommand* command) {
    switch (command->kind_case()) {
      case v1::DraftCommand::kAttach:
        if ((repairs & kRepairSizes) != 0) SessionBooks::RepairAttach(command->mutable_attach());
        break;
      case v1::DraftCommand::kOpenRing: {
        v1::OpenRing* open = command->mutable_open_ring();
        open->set_socket_path("/nonexistent/ring.sock");
        if ((repairs & kRepairSizes) != 0) {
          if (open->transport() == 0) open->set_transport(v1::RING_TRANSPORT_INLINE);
          open->set_entries(kRingEntries);
          open->set_rows_per_entry(kMaxTreeNodes);
          open->set_vocabulary_size(kVocabularySize);
        }
        ring_epoch_ = open->ring_epoch();
        break;
      }
      case v1::DraftCommand::kPropose:
        books_.RepairUpdate(repairs, command->mutable_propose()->mutable_update_slots());
        for (v1::ProposeItem& item : *command->mutable_propose()->mutable_items()) {
          books_.RepairItem(repairs, &item);
          if ((repairs & kRepairRings) != 0) {
            item.mutable_ring()->set_ring_epoch(ring_epoch_);
            item.mutable_ring()->set_entry(item.ring().entry() % kRingEntries);
            if (item.ring().sequence() == 0) item.mutable_ring()->set_sequence(++ring_sequence_);
          }
        }
        break;
      case v1::DraftCommand::kUpdateSlots:
        books_.RepairUpdate(repairs, command->mutable_update_slots());
        break;
      default:
        break;
    }
  }

  void Learn(const v1::Propose& propose, const v1::ProposeReply& reply) {
    if (propose.has_update_slots()) {
      books_.LearnUpdate(propose.update_slots(), reply.update_slots());
    }
    Check(reply.results_size() == propose.items_size(), "every item has a result");
    std::set<uint32_t> executed;
    for (int i = 0; i < propose.items_size(); ++i) {
      const v1::ProposeItem& item = propose.items(i);
      const v1::ProposeResult& result = reply.results(i);
      Check(result.parents().empty() || result.parents_size() == result.draft_token_ids_size(),
            "each token of a tree has a parent");
      for (const int32_t id : result.draft_token_ids()) {
        Check(id >= 0 && static_cast<uint32_t>(id) < kVocabularySize,
              "draft tokens are of the vocabulary");
      }
      if (books_.IsRepeatedInBatch(item.at(), result.state(), &executed)) continue;
      std::vector<int32_t> fed(item.token_ids().begin(), item.token_ids().end());
      fed.insert(fed.end(), result.draft_token_ids().begin(), result.draft_token_ids().end());
      books_.Learn(item.at(), result.state(), fed, false);
    }
  }

  DrafterSession session_;
  SessionBooks books_;
  uint64_t ring_epoch_ = 0;
  uint64_t ring_sequence_ = 0;
};

}  // namespace
}  // namespace tandem::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  static fuzz::SessionModel model;
  {
    fuzz::DraftFuzzer fuzzer(model.get());
    fuzz::ForEachCommand<v1::DraftCommand>(
        fuzz::FuzzInput(data, size),
        [&](uint8_t repairs, v1::DraftCommand* command) { fuzzer.Run(repairs, command); });
  }
  model.CheckAllFree();
  return 0;
}
