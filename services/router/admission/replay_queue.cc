#include "services/router/admission/replay_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/token_hash.h"

namespace tandem {

bool IsAudited(const EngineOptions& options, CallId call) {
  const uint64_t hash = ExtendTokenHash(options.audit_key ^ call, 0);
  return static_cast<double>(hash >> 11) * 0x1p-53 < options.audit_fraction;
}

void ReplayQueue::Push(const Sequence& finished) {
  if (finished.request.open.lenience() != 1 || finished.request.is_sampled() ||
      finished.has_mixed_numerics || !finished.has_output()) {
    return;
  }
  // A replay shares no page with a client: every row is computed anew. No tenant's name has such a
  // byte.
  GenerationRequest request = finished.request;
  request.open.clear_prompt_logprobs();
  request.open.set_cache_salt(absl::StrCat("\x01replay ", finished.call));
  auto replay = std::make_unique<Sequence>(finished.call, std::move(request),
                                           finished.account.admitted_at(), tokenizer_);
  replay->expected.assign(finished.output_tokens().begin(), finished.output_tokens().end());
  replay->numerics_id = finished.numerics_id;
  if (replays_.size() >= kMaxReplays) replays_.pop_front();
  replays_.push_back(std::move(replay));
}

std::unique_ptr<Sequence> ReplayQueue::Take(const std::string& numerics_id) {
  const auto it = std::find_if(
      replays_.begin(), replays_.end(),
      [&](const std::unique_ptr<Sequence>& replay) { return replay->numerics_id == numerics_id; });
  if (it == replays_.end()) return nullptr;
  std::unique_ptr<Sequence> replay = std::move(*it);
  replays_.erase(it);
  return replay;
}

}  // namespace tandem
