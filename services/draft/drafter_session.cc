#include "services/draft/drafter_session.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "common/rpc/protocol.h"
#include "common/status.h"

namespace tandem {

DrafterSession::DrafterSession(WorkerModel* model, std::unique_ptr<Proposer> proposer)
    : BatchSession(model),
      proposer_(std::move(proposer)),
      ring_(model, [this](v1::LogProbChunk chunk) {
        v1::DraftReply reply;
        *reply.mutable_log_prob_chunk() = std::move(chunk);
        EmitReply(std::move(reply));
      }) {
  if (proposer_ == nullptr) proposer_ = std::make_unique<HostProposer>(&model->model());
}

void DrafterSession::OfferTransports(v1::AttachReply& reply) const { ring_.OfferTransports(reply); }

absl::Status DrafterSession::HandleOther(const v1::DraftCommand& command, v1::DraftReply& reply) {
  switch (command.kind_case()) {
    case v1::DraftCommand::kOpenRing:
      return ring_.Open(command.open_ring(), *reply.mutable_open_ring());
    case v1::DraftCommand::kReadVocabulary:
      ReadVocabulary(reply);
      return absl::OkStatus();
    default:
      return UnknownCommand();
  }
}

absl::StatusOr<NewRows> DrafterSession::Prepare(const v1::ProposeItem& item, DraftTask& task) {
  if (item.draft_length() > draft_limits().max_depth) {
    return InvalidArgument("draft_length: got " + std::to_string(item.draft_length()) +
                           ", the session was attached with at most " +
                           std::to_string(draft_limits().max_depth));
  }
  if (item.draft_length() > 0 && task.token_ids.empty()) {
    return InvalidArgument("token_ids: empty, want at least the pending token to draft from");
  }
  const size_t capacity = task.slot->capacity();
  const size_t fed = item.at().length() + task.token_ids.size();
  if (fed > capacity) {
    return ResourceExhausted(std::to_string(fed) + " tokens, a slot of the drafter holds " +
                             std::to_string(capacity));
  }
  // The last draft token is not fed: K draft tokens add K - 1 rows to those of `token_ids`.
  task.draft_length = std::min<size_t>(item.draft_length(), capacity - fed + 1);
  const bool drafts = task.draft_length > 0;
  const NewRows rows = {.token_ids = task.token_ids,
                        .num_more = drafts ? task.draft_length - 1 : 0,
                        .needs_logits = drafts};
  if (!drafts || !IsSampled(task.slot->params())) return rows;
  if (!item.has_ring()) {
    return InvalidArgument("ring: missing, but a sampled draft is judged by its distribution");
  }
  const ScopedSeconds timing(transfer_seconds());
  TANDEM_ASSIGN_OR_RETURN(task.draft_log_probs, ring_.Begin(item.ring(), task.draft_length));
  return rows;
}

void DrafterSession::Abandon(const v1::ProposeItem& item, DraftTask& task) {
  if (task.draft_log_probs.empty()) return;
  const ScopedSeconds timing(transfer_seconds());
  ring_.Abandon(item.ring());
}

absl::Status DrafterSession::Compute(std::span<DraftTask> tasks) { return proposer_->Run(tasks); }

absl::Status DrafterSession::Finish(const v1::ProposeItem& item, DraftTask& task,
                                    v1::ProposeResult& result) {
  task.slot->Publish(item.at().length() + static_cast<size_t>(item.token_ids_size()));
  // Gives back the pages of draft tokens that were not drawn.
  task.slot->TruncateTo(task.slot->length());
  result.mutable_draft_token_ids()->Add(task.draft_token_ids.begin(), task.draft_token_ids.end());
  if (task.draft_token_ids.empty()) {
    Abandon(item, task);
  } else if (!task.draft_log_probs.empty()) {
    const ScopedSeconds timing(transfer_seconds());
    ring_.Commit(item.ring(), task.draft_token_ids.size());
  }
  return absl::OkStatus();
}

void DrafterSession::EndBatch(v1::ProposeReply& reply) {
  reply.set_catch_up_seconds(proposer_->catch_up_seconds());
}

void DrafterSession::ReadVocabulary(v1::DraftReply& reply) {
  const Tokenizer& tokenizer = model().tokenizer();
  const size_t num_entries = tokenizer.num_entries();
  size_t next = 0;
  while (true) {
    v1::VocabularyChunk& chunk = *reply.mutable_vocabulary();
    chunk.set_first_id(static_cast<uint32_t>(next));
    for (size_t bytes = 0; next < num_entries && bytes < kMaxChunkBytes; ++next) {
      const std::string_view entry = tokenizer.Entry(static_cast<int32_t>(next));
      chunk.add_entries(entry.data(), entry.size());
      bytes += entry.size() + 4;
    }
    chunk.set_last(next == num_entries);
    if (chunk.last()) return;
    EmitReply(std::exchange(reply, {}));
  }
}

}  // namespace tandem
