#include "services/draft/drafter_session.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/rpc/protocol.h"
#include "common/status.h"

namespace tandem {
namespace {

void WriteSiblings(const DraftTask& task, v1::ProposeResult& result) {
  if (task.sibling_token_ids.empty()) return;
  result.mutable_draft_token_ids()->Add(task.sibling_token_ids.begin(),
                                        task.sibling_token_ids.end());
  const auto length = static_cast<int32_t>(task.draft_length);
  for (int32_t i = 0; i < length; ++i) result.add_parents(i - 1);
  for (int32_t i = 0; i < length; ++i) {
    const size_t num_siblings = task.NumSiblings(static_cast<size_t>(i));
    for (size_t sibling = 0; sibling < num_siblings; ++sibling) result.add_parents(i - 1);
  }
}

}  // namespace

DrafterSession::DrafterSession(WorkerModel* model, std::unique_ptr<Proposer> proposer)
    : BatchSession(model),
      proposer_(std::move(proposer)),
      ring_(model, [this](v1::LogProbChunk chunk) {
        v1::DraftReply reply;
        *reply.mutable_log_prob_chunk() = std::move(chunk);
        EmitReply(std::move(reply));
      }) {
  if (proposer_ == nullptr) {
    proposer_ = std::make_unique<HostProposer>(&model->model(), model->guesses());
  }
}

void DrafterSession::Complete(v1::AttachReply& reply) const { ring_.OfferTransports(reply); }

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

absl::Status DrafterSession::CheckSiblings(const v1::ProposeItem& item) const {
  if (item.num_siblings().empty()) return absl::OkStatus();
  if (item.num_siblings_size() > static_cast<int>(item.draft_length())) {
    return InvalidArgument("num_siblings: " + std::to_string(item.num_siblings_size()) +
                           " positions of a chain of " + std::to_string(item.draft_length()));
  }
  uint64_t num_nodes = item.draft_length();
  for (const uint32_t num_siblings : item.num_siblings()) {
    if (num_siblings > kMaxSiblings) {
      return InvalidArgument("num_siblings: got " + std::to_string(num_siblings) +
                             ", want at most " + std::to_string(kMaxSiblings));
    }
    num_nodes += num_siblings;
  }
  if (num_nodes == item.draft_length() || num_nodes <= draft_limits().max_nodes) {
    return absl::OkStatus();
  }
  return InvalidArgument("num_siblings: a tree of " + std::to_string(num_nodes) +
                         " tokens, the session was attached with at most " +
                         std::to_string(draft_limits().max_nodes));
}

absl::StatusOr<NewRows> DrafterSession::Prepare(const v1::ProposeItem& item, DraftTask& task) {
  if (item.draft_length() > draft_limits().max_depth) {
    return InvalidArgument("draft_length: got " + std::to_string(item.draft_length()) +
                           ", the session was attached with at most " +
                           std::to_string(draft_limits().max_depth));
  }
  TANDEM_RETURN_IF_ERROR(CheckSiblings(item));
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
  task.drafter = draft_model_number();
  task.num_siblings.assign(item.num_siblings().begin(), item.num_siblings().end());
  if (task.draft_length < item.draft_length()) task.num_siblings.clear();
  const bool drafts = task.draft_length > 0;
  const NewRows rows = {.token_ids = task.token_ids,
                        .num_more = drafts ? task.draft_length - 1 : 0,
                        .needs_logits = drafts};
  if (!drafts || !IsSampled(task.slot->params())) return rows;
  if (!item.has_ring()) {
    return InvalidArgument("ring: missing, but a sampled draft is judged by its distribution");
  }
  const ScopedSeconds timing(transfer_seconds());
  TANDEM_ASSIGN_OR_RETURN(task.draft_log_probs,
                          ring_.Begin(item.ring(), task.draft_length + task.TotalSiblings()));
  return rows;
}

void DrafterSession::Abandon(const v1::ProposeItem& item, DraftTask& task) {
  if (task.draft_log_probs.empty()) return;
  const ScopedSeconds timing(transfer_seconds());
  ring_.Abandon(item.ring());
}

absl::Status DrafterSession::Compute(std::span<DraftTask> tasks) {
  const uint64_t num_guessed = proposer_->num_guessed();
  const uint64_t num_right = proposer_->num_guessed_right();
  absl::Status status = proposer_->Run(tasks);
  model().stats().num_guessed += proposer_->num_guessed() - num_guessed;
  model().stats().num_guessed_right += proposer_->num_guessed_right() - num_right;
  return status;
}

absl::Status DrafterSession::Finish(const v1::ProposeItem& item, DraftTask& task,
                                    v1::ProposeResult& result) {
  task.slot->Publish(item.at().length() + static_cast<size_t>(item.token_ids_size()));
  // Gives back the pages of draft tokens that were not drawn.
  task.slot->TruncateTo(task.slot->length());
  result.mutable_draft_token_ids()->Add(task.draft_token_ids.begin(), task.draft_token_ids.end());
  // The rows of siblings follow those of a whole chain.
  if (task.draft_token_ids.size() == task.draft_length) WriteSiblings(task, result);
  if (task.draft_token_ids.empty()) {
    Abandon(item, task);
  } else if (!task.draft_log_probs.empty()) {
    const ScopedSeconds timing(transfer_seconds());
    ring_.Commit(item.ring(), static_cast<size_t>(result.draft_token_ids_size()));
  }
  return absl::OkStatus();
}

void DrafterSession::EndBatch(v1::ProposeReply& reply) {
  reply.set_catch_up_seconds(proposer_->catch_up_seconds());
  const std::vector<uint32_t> pass_rows = proposer_->pass_rows();
  reply.mutable_pass_rows()->Assign(pass_rows.begin(), pass_rows.end());
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
