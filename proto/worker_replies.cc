#include "proto/worker_replies.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "proto/draft_tree.h"

namespace tandem {
namespace {

template <typename... Parts>
absl::Status Broken(const Parts&... parts) {
  return Internal(absl::StrCat(parts...));
}

bool IsToken(int64_t id, uint32_t vocabulary_size) { return id >= 0 && id < vocabulary_size; }

absl::Status CheckSlot(uint32_t sent, const v1::SlotState& state) {
  if (state.slot() == sent) return absl::OkStatus();
  return Broken("answered slot ", sent, " with slot ", state.slot());
}

absl::Status CheckCachedTokens(uint32_t num_cached, uint32_t num_sent) {
  if (num_cached <= num_sent) return absl::OkStatus();
  return Broken("took ", num_cached, " rows from its prefix cache of ", num_sent);
}

absl::Status CheckProposal(const SentVerify& sent, const v1::SelfProposal& proposal,
                           uint32_t vocabulary_size) {
  if (!sent.proposal_limits.has_value()) return Broken("proposed a draft that was not asked for");
  const auto num_tokens = static_cast<size_t>(proposal.token_ids_size());
  const std::span parents(proposal.parents().data(), static_cast<size_t>(proposal.parents_size()));
  if (absl::Status status = CheckDraft(parents, num_tokens, *sent.proposal_limits); !status.ok()) {
    return Broken("proposed a draft with ", status.message());
  }
  for (const int32_t id : proposal.token_ids()) {
    if (!IsToken(id, vocabulary_size)) {
      return Broken("proposed token ", id, " of a vocabulary of ", vocabulary_size);
    }
  }
  if (static_cast<size_t>(proposal.chances_size()) != num_tokens) {
    return Broken("proposed ", num_tokens, " tokens with ", proposal.chances_size(), " chances");
  }
  for (const float chance : proposal.chances()) {
    if (!(chance > 0 && chance <= 1)) {
      return Broken("proposed a token with the chance ", chance, ", want (0, 1]");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLogProb(float logprob) {
  constexpr float kRounding = 1e-3f;
  // Written so that NaN fails.
  if (logprob <= kRounding) return absl::OkStatus();
  return Broken("gave the log-probability ", logprob, ", want 0 at most");
}

// The prompt was scored as far as it was asked for, and from rows that were computed.
absl::Status CheckScores(const SentVerify& sent, const v1::VerifyResult& result,
                         uint32_t vocabulary_size) {
  if (result.prompt_logprobs_size() != static_cast<int>(sent.num_scored)) {
    return Broken("gave ", result.prompt_logprobs_size(), " prompt logprobs for ", sent.num_scored,
                  " rows");
  }
  if (sent.num_scored > 0 && result.num_cached_tokens() > 0) {
    return Broken("scored rows of its prefix cache");
  }
  const auto num_top = static_cast<int>(std::min(sent.num_top, vocabulary_size));
  for (const v1::TokenLogprobs& token : result.prompt_logprobs()) {
    TANDEM_RETURN_IF_ERROR(CheckLogProb(token.logprob()));
    if (token.top_size() != num_top || !token.text().empty() || !token.bytes().empty()) {
      return Broken("gave ", token.top_size(), " top tokens, and perhaps texts, where ", num_top,
                    " were asked for");
    }
    for (const v1::TopLogprob& top : token.top()) {
      TANDEM_RETURN_IF_ERROR(CheckLogProb(top.logprob()));
      if (!IsToken(top.token_id(), vocabulary_size) || !top.text().empty() ||
          !top.bytes().empty()) {
        return Broken("gave the top token ", top.token_id(), " of a vocabulary of ",
                      vocabulary_size, ", and perhaps its text");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSampled(const SentVerify& sent, const v1::VerifyResult& result,
                          uint32_t vocabulary_size) {
  if (!IsToken(result.next_token_id(), vocabulary_size)) {
    return Broken("sampled token ", result.next_token_id(), " of a vocabulary of ",
                  vocabulary_size);
  }
  const uint32_t num_tokens = result.num_accepted() + 1;
  if (sent.wants_logprobs && result.logprobs_size() != static_cast<int>(num_tokens)) {
    return Broken("gave ", result.logprobs_size(), " logprobs for ", num_tokens, " tokens");
  }
  if (result.successors_size() != static_cast<int>(num_tokens * sent.num_successors)) {
    return Broken("gave ", result.successors_size(), " successors of ", num_tokens, " tokens");
  }
  for (const int32_t id : result.successors()) {
    if (id != -1 && !IsToken(id, vocabulary_size)) {
      return Broken("gave the successor ", id, " of a vocabulary of ", vocabulary_size);
    }
  }
  for (const v1::AuditSample& sample : result.audit()) {
    TANDEM_RETURN_IF_ERROR(CheckAuditSample(sample));
  }
  return result.has_proposal() ? CheckProposal(sent, result.proposal(), vocabulary_size)
                               : absl::OkStatus();
}

// A tree is exactly what was asked for: the whole chain, and then all siblings by position.
bool HasWantedShape(const SentPropose& sent, std::span<const int32_t> parents) {
  if (parents.size() != sent.num_nodes() || parents.size() == sent.draft_length) return false;
  size_t next = 0;
  for (uint32_t i = 0; i < sent.draft_length; ++i) {
    if (parents[next++] != static_cast<int32_t>(i) - 1) return false;
  }
  for (uint32_t i = 0; i < sent.num_siblings.size(); ++i) {
    for (uint32_t sibling = 0; sibling < sent.num_siblings[i]; ++sibling) {
      if (parents[next++] != static_cast<int32_t>(i) - 1) return false;
    }
  }
  return true;
}

}  // namespace

// The comparisons are written so that NaN fails.
absl::Status CheckAuditSample(const v1::AuditSample& sample) {
  if (!(sample.uniform() >= 0 && sample.uniform() <= 1)) {
    return InvalidArgument(absl::StrCat("audit.uniform: got ", sample.uniform(), ", want [0, 1]"));
  }
  if (!(std::abs(sample.draft_mode_excess()) <= 1)) {
    return InvalidArgument(absl::StrCat("audit.draft_mode_excess: got ", sample.draft_mode_excess(),
                                        ", want [-1, 1]"));
  }
  return absl::OkStatus();
}

absl::Status CheckNumResults(size_t num_items, int num_results) {
  if (num_results == static_cast<int>(num_items)) return absl::OkStatus();
  return Broken("answered ", num_items, " items with ", num_results);
}

absl::Status CheckProposeResult(const SentPropose& sent, const v1::ProposeResult& result,
                                uint32_t vocabulary_size) {
  const v1::SlotState& state = result.state();
  TANDEM_RETURN_IF_ERROR(CheckSlot(sent.slot, state));
  if (state.code() != v1::WORKER_CODE_OK) return absl::OkStatus();
  const auto num_drafted = static_cast<uint32_t>(result.draft_token_ids_size());
  const std::span parents(result.parents().data(), static_cast<size_t>(result.parents_size()));
  if (parents.empty() ? num_drafted > sent.draft_length : !HasWantedShape(sent, parents)) {
    return Broken("drafted ", num_drafted, " tokens and ", parents.size(),
                  " parents where a chain of at most ", sent.draft_length, " and ",
                  sent.num_nodes() - sent.draft_length, " siblings were asked for");
  }
  if (!parents.empty() && parents.size() != num_drafted) {
    return Broken("drafted ", num_drafted, " tokens with ", parents.size(), " parents");
  }
  for (const int32_t id : result.draft_token_ids()) {
    if (IsToken(id, vocabulary_size)) continue;
    return Broken("drafted token ", id, " of a vocabulary of ", vocabulary_size);
  }
  if (state.cached_len() < sent.end || state.cached_len() > sent.end + sent.draft_length) {
    return Broken("holds ", state.cached_len(), " rows where ", sent.end, " were sent");
  }
  return CheckCachedTokens(result.num_cached_tokens(), sent.end - sent.begin);
}

absl::Status CheckVerifyResult(const SentVerify& sent, const v1::VerifyResult& result,
                               uint32_t vocabulary_size) {
  const v1::SlotState& state = result.state();
  TANDEM_RETURN_IF_ERROR(CheckSlot(sent.slot, state));
  if (state.code() != v1::WORKER_CODE_OK) return absl::OkStatus();
  const uint32_t num_accepted = result.num_accepted();
  if (num_accepted > sent.num_drafted || (num_accepted > 0 && !result.ring_error().empty())) {
    return Broken("accepted ", num_accepted, " of ", sent.num_drafted, " drafts");
  }
  const std::span path(result.path().data(), static_cast<size_t>(result.path_size()));
  if (path.size() != (sent.parents.empty() ? 0 : num_accepted) ||
      !IsPathOfDraft(sent.parents, sent.num_drafted, path)) {
    return Broken("accepted ", num_accepted, " drafts that are no path of ", sent.num_drafted);
  }
  if (state.cached_len() != sent.end + num_accepted) {
    return Broken("holds ", state.cached_len(), " rows where ", sent.end + num_accepted,
                  " were expected");
  }
  TANDEM_RETURN_IF_ERROR(CheckCachedTokens(result.num_cached_tokens(), sent.end - sent.begin));
  TANDEM_RETURN_IF_ERROR(CheckScores(sent, result, vocabulary_size));
  if (sent.sample) return CheckSampled(sent, result, vocabulary_size);
  return result.has_proposal() ? Broken("proposed a draft that was not asked for")
                               : absl::OkStatus();
}

bool AnswersItem(const SentPropose& sent, const v1::LogProbChunk& chunk) {
  return sent.ring.has_value() && sent.ring->entry() == chunk.ring().entry() &&
         sent.ring->sequence() == chunk.ring().sequence() &&
         sent.ring->ring_epoch() == chunk.ring().ring_epoch() && chunk.rows() <= sent.num_nodes();
}

absl::Status CheckChunk(const SentPropose& sent, const v1::LogProbChunk& chunk,
                        uint32_t vocabulary_size) {
  const uint64_t block_bytes = uint64_t{chunk.rows()} * vocabulary_size * sizeof(float);
  // A piece without data would cost the router something, and could be sent forever.
  if (!chunk.data().empty() && chunk.offset_bytes() == sent.received_bytes &&
      sent.received_bytes <= block_bytes &&
      chunk.data().size() <= block_bytes - sent.received_bytes) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("sent ", chunk.data().size(),
                                          " bytes of log-prob rows at ", chunk.offset_bytes(),
                                          ", after ", sent.received_bytes, " of ", block_bytes));
}

}  // namespace tandem
