#include "services/verifier/verifier_session.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "common/rpc/protocol.h"
#include "common/status.h"
#include "services/worker/session/wire.h"

namespace tandem {
namespace {

// Writes the token's log-probability and the first `num_top` of the others.
void WriteLogProbs(const TokenLogProbs& token, int32_t num_top, v1::TokenLogprobs& written) {
  written.set_logprob(token.log_prob);
  const auto num = std::min(token.top.size(), static_cast<size_t>(num_top));
  for (const TopLogProb& top : std::span(token.top).first(num)) {
    v1::TopLogprob& entry = *written.add_top();
    entry.set_token_id(top.token_id);
    entry.set_logprob(top.log_prob);
  }
}

void WriteVerdict(const BlockVerdict& verdict, const SamplingParams& params, bool is_tree,
                  v1::VerifyResult& result) {
  result.set_num_accepted(static_cast<uint32_t>(verdict.num_accepted()));
  if (is_tree) result.mutable_path()->Assign(verdict.path.begin(), verdict.path.end());
  result.set_next_token_id(verdict.next_token_id);
  for (const TokenLogProbs& token : verdict.log_probs) {
    for (int32_t i = 0; i < params.num_successors; ++i) {
      const auto rank = static_cast<size_t>(i);
      result.add_successors(rank < token.top.size() ? token.top[rank].token_id : -1);
    }
    if (params.num_logprobs < 0) continue;
    WriteLogProbs(token, params.num_logprobs, *result.add_logprobs());
  }
  for (const AuditSample& sample : verdict.audit) {
    v1::AuditSample& written = *result.add_audit();
    written.set_uniform(sample.uniform);
    written.set_draft_mode_excess(sample.draft_mode_excess);
  }
}

void WriteProposal(const GuessTree& tree, v1::SelfProposal& proposal) {
  proposal.mutable_token_ids()->Assign(tree.token_ids.begin(), tree.token_ids.end());
  if (!IsChain(tree.parents)) {
    proposal.mutable_parents()->Assign(tree.parents.begin(), tree.parents.end());
  }
  proposal.mutable_chances()->Assign(tree.chances.begin(), tree.chances.end());
}

// Returns what the request does to the target's logits after the slot's tokens and the next one.
std::optional<GuessTransforms> TransformsAfter(Slot& slot, int32_t next_token_id,
                                               size_t vocabulary_size) {
  return GuessTransforms::After({.params = &slot.params(),
                                 .counts = slot.counts(),
                                 .newest_token_id = next_token_id,
                                 .num_output_tokens = slot.num_output_tokens() + 1,
                                 .vocabulary_size = vocabulary_size});
}

RingError ReasonOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kDataLoss:
      return RingError::kBadRows;
    case absl::StatusCode::kFailedPrecondition:
      return RingError::kFailedPrecondition;
    case absl::StatusCode::kInvalidArgument:
      return RingError::kInvalidArgument;
    default:
      return RingError::kInternal;
  }
}

std::unique_ptr<Judge> JudgeOrHostJudge(std::unique_ptr<Judge> judge, WorkerModel& model) {
  return judge != nullptr ? std::move(judge) : std::make_unique<HostJudge>(&model.model());
}

}  // namespace

VerifierSession::VerifierSession(WorkerModel* model, RingListener* ring_listener,
                                 VerifierShared* shared, std::unique_ptr<Judge> judge)
    : BatchSession(model),
      judge_(JudgeOrHostJudge(std::move(judge), *model)),
      ring_(model, ring_listener, &shared->rings, judge_->checks_draft_rows()),
      heads_(shared->heads),
      told_heads_(heads_.version()) {}

absl::Status VerifierSession::Handle(const v1::VerifierCommand& command, const Emit& emit) {
  ring_.SweepRetired();
  return BatchSession::Handle(command, emit);
}

void VerifierSession::Complete(v1::AttachReply& reply) const {
  ring_.OfferTransports(reply);
  *reply.mutable_self_drafter() = heads_.Describe();
}

absl::Status VerifierSession::HandleOther(const v1::VerifierCommand& command,
                                          v1::VerifierReply& reply) {
  switch (command.kind_case()) {
    case v1::VerifierCommand::kCreateRing:
      return ring_.Create(command.create_ring(), *reply.mutable_create_ring());
    case v1::VerifierCommand::kConfirmRing:
      reply.mutable_confirm_ring();
      return ring_.Confirm(command.confirm_ring());
    case v1::VerifierCommand::kDropRing:
      return ring_.DropOf(command.drop_ring().draft_model_number());  // has no reply
    case v1::VerifierCommand::kLogProbChunk:
      ring_.AcceptChunk(command.log_prob_chunk());  // has no reply
      return absl::OkStatus();
    case v1::VerifierCommand::kSetHeads:
      return SetHeads(command.set_heads(), *reply.mutable_set_heads());
    default:
      return UnknownCommand();
  }
}

absl::Status VerifierSession::SetHeads(const v1::SetHeads& command, v1::SetHeadsReply& reply) {
  TANDEM_ASSIGN_OR_RETURN(const HeadsShelf::Answer answer, heads_.Want(command));
  reply.set_loading(answer == HeadsShelf::Answer::kLoading);
  reply.set_superseded(answer == HeadsShelf::Answer::kSuperseded);
  TellHeads(reply.mutable_self_drafter());
  return absl::OkStatus();
}

void VerifierSession::TellHeads(v1::SelfDrafter* told) {
  *told = heads_.Describe();
  if (std::exchange(told_heads_, heads_.version()) != heads_.version()) has_lost_heads_ = false;
}

void VerifierSession::BeginBatch() {
  ring_.BeginBatch();
  orders_.clear();
  propose_seconds_ = 0;
}

bool VerifierSession::CanPropose(Slot& slot) {
  // The router may not know yet that the heads are gone, or that they read what this text lacks.
  const SelfDrafter* const heads = model().model().self_drafter();
  return heads != nullptr && (heads->row_features().parts.empty() || slot.cache()->has_features());
}

absl::Status VerifierSession::CheckShape(const v1::VerifyItem& item) {
  const v1::ProposalShape& shape = item.propose();
  if (!item.sample()) return InvalidArgument("propose: given, but `sample` is false");
  if (shape.max_depth() < 1 || shape.max_depth() > draft_limits().max_depth) {
    return InvalidArgument("propose.max_depth: got " + std::to_string(shape.max_depth()) +
                           ", want from 1 to " + std::to_string(draft_limits().max_depth));
  }
  if (shape.max_nodes() > draft_limits().max_nodes) {
    return InvalidArgument("propose.max_nodes: got " + std::to_string(shape.max_nodes()) +
                           ", want at most " + std::to_string(draft_limits().max_nodes));
  }
  return absl::OkStatus();
}

absl::Status VerifierSession::CheckScores(const v1::VerifyItem& item,
                                          const SamplingParams& params) {
  const v1::PromptScores& scores = item.scores();
  const auto num_tokens = static_cast<uint32_t>(item.token_ids_size());
  if (params.num_prompt_logprobs < 0 || item.draft_token_ids_size() > 0) {
    return InvalidArgument("scores: given with a draft, or without open.prompt_logprobs");
  }
  if (scores.num_rows() < 1 || scores.num_rows() > num_tokens || num_tokens > kMaxScoredRows) {
    return InvalidArgument("scores.num_rows: got " + std::to_string(scores.num_rows()) + " of " +
                           std::to_string(num_tokens) + " rows, want 1 or more of at most " +
                           std::to_string(kMaxScoredRows));
  }
  if (scores.has_following_token_id() != (scores.num_rows() == num_tokens)) {
    return InvalidArgument("scores.following_token_id: want it if and only if all rows are scored");
  }
  const int32_t following = scores.following_token_id();
  return CheckTokenIds("scores.following_token_id", {&following, 1}, model().vocabulary_size());
}

absl::StatusOr<NewRows> VerifierSession::Prepare(const v1::VerifyItem& item, JudgeTask& task) {
  const std::span<const int32_t> draft_token_ids = ToSpan(item.draft_token_ids());
  TANDEM_RETURN_IF_ERROR(
      CheckTokenIds("draft_token_ids", draft_token_ids, model().vocabulary_size()));
  const std::span<const int32_t> parents = ToSpan(item.parents());
  TANDEM_RETURN_IF_ERROR(CheckDraft(parents, draft_token_ids.size(), draft_limits()));
  if (task.token_ids.empty()) {
    return InvalidArgument("token_ids: empty, want at least the pending token");
  }
  if (!item.sample() && !draft_token_ids.empty()) {
    return InvalidArgument("draft_token_ids: given, but `sample` is false");
  }
  if (item.has_propose()) TANDEM_RETURN_IF_ERROR(CheckShape(item));
  if (item.has_scores()) TANDEM_RETURN_IF_ERROR(CheckScores(item, task.slot->params()));
  const size_t rows = item.at().length() + task.token_ids.size() + draft_token_ids.size();
  if (rows > task.slot->capacity()) {
    return ResourceExhausted(std::to_string(rows) + " tokens, a slot of the verifier holds " +
                             std::to_string(task.slot->capacity()));
  }
  task.draft_token_ids = draft_token_ids;
  task.draft_parents = parents;
  task.sample = item.sample();
  task.num_scored = item.scores().num_rows();
  task.following_token_id = item.scores().following_token_id();
  return NewRows{.token_ids = task.token_ids,
                 .num_more = draft_token_ids.size(),
                 .needs_logits = task.sample,
                 .needs_all_logits = task.num_scored > 0};
}

void VerifierSession::OnExecuted(const v1::VerifyItem& item, JudgeTask& task,
                                 v1::VerifyResult& result) {
  if (item.has_propose() && CanPropose(*task.slot)) {
    task.feature_place = orders_.size();
    orders_.push_back({.place = orders_.size(),
                       .next_token_id = 0,
                       .limits = {item.propose().max_depth(), item.propose().max_nodes()},
                       .tree = {}});
  }
  if (!item.has_ring() || task.draft_token_ids.empty() || !IsSampled(task.slot->params())) return;
  const ScopedSeconds timing(transfer_seconds());
  absl::StatusOr<SessionRings::DraftBlock> block = ring_.Take(item.ring(), task.draft_token_ids);
  if (!block.ok()) {
    // The draft is dropped without judgment, whatever was drawn, and the round decodes plainly.
    task.draft_token_ids = {};
    task.draft_parents = {};
    result.set_ring_error(std::string(block.status().message()));
    ring_.CountError(item.ring(), ReasonOf(block.status()));
    return;
  }
  task.ring_block.emplace(std::move(block->rows));
  task.drafter = block->draft_model_number;
  task.draft_log_probs = task.ring_block->rows();
}

absl::Status VerifierSession::Compute(std::span<JudgeTask> tasks) {
  TANDEM_RETURN_IF_ERROR(judge_->Run(tasks));
  return orders_.empty() ? absl::OkStatus() : Propose(tasks);
}

absl::Status VerifierSession::Propose(std::span<JudgeTask> tasks) {
  const ScopedSeconds timing(&propose_seconds_);
  std::vector<std::optional<GuessTransforms>> transforms(orders_.size());
  for (const JudgeTask& task : tasks) {
    if (!task.feature_place.has_value()) continue;
    GuessOrder& order = orders_[*task.feature_place];
    order.text = {task.slot->cache(), task.slot->token_ids()};
    order.next_token_id = task.verdict.next_token_id;
    order.temperature = double{task.slot->params().temperature};
    std::optional<GuessTransforms>& of_order = transforms[*task.feature_place];
    of_order = TransformsAfter(*task.slot, order.next_token_id, model().vocabulary_size());
    order.transforms = of_order.has_value() ? &*of_order : nullptr;
    // A slot without a verdict has no feature.
    if (!task.verdict.finite) order.limits = {};
  }
  std::vector<GuessOrder> wanted;
  std::vector<TextRows> texts;
  for (const GuessOrder& order : orders_) {
    if (order.limits.depth == 0) continue;
    wanted.push_back(order);
    texts.push_back(order.text);
  }
  SelfDrafter& drafter = *model().model().self_drafter();
  absl::Status status = drafter.CatchUp(texts);
  if (status.ok()) status = drafter.Propose(wanted);
  if (absl::IsFailedPrecondition(status)) {
    // The heads' file has become shorter. The verdicts do not need it.
    if (!std::exchange(has_lost_heads_, true)) {
      spdlog::warn("the heads propose nothing any more: {}", std::string(status.message()));
    }
    return absl::OkStatus();
  }
  TANDEM_RETURN_IF_ERROR(status);
  for (GuessOrder& order : wanted) orders_[order.place].tree = std::move(order.tree);
  return absl::OkStatus();
}

absl::Status VerifierSession::Finish(const v1::VerifyItem& item, JudgeTask& task,
                                     v1::VerifyResult& result) {
  task.slot->Publish(task.slot->length());
  if (!task.verdict.finite) {
    return absl::DataLossError("the target's logits hold NaN or infinity");
  }
  for (const TokenLogProbs& score : task.scores) {
    WriteLogProbs(score, task.slot->params().num_prompt_logprobs, *result.add_prompt_logprobs());
  }
  if (!task.sample) return absl::OkStatus();
  WriteVerdict(task.verdict, task.slot->params(), !task.draft_parents.empty(), result);
  if (task.feature_place.has_value()) {
    WriteProposal(orders_[*task.feature_place].tree, *result.mutable_proposal());
  }
  if (!task.drafts_valid) {
    result.set_ring_error("ring entry " + std::to_string(item.ring().entry()) +
                          ": a row is no distribution that gives its token");
    ring_.CountError(item.ring(), RingError::kBadRows);
  }
  return absl::OkStatus();
}

void VerifierSession::EndBatch(v1::VerifyReply& reply) {
  reply.set_propose_seconds(propose_seconds_);
  reply.set_compute_seconds(reply.compute_seconds() - propose_seconds_);
  const CachePool& caches = model().caches();
  reply.set_num_open_slots(static_cast<uint32_t>(caches.size() - caches.num_free()));
  if (told_heads_ == heads_.version()) return;
  TellHeads(reply.mutable_self_drafter());
}

}  // namespace tandem
