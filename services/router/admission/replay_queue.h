// Finished requests that the audit decodes again without drafting (docs/audit.md).
#ifndef TANDEM_SERVICES_ROUTER_ADMISSION_REPLAY_QUEUE_H_
#define TANDEM_SERVICES_ROUTER_ADMISSION_REPLAY_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "common/tokenizer/tokenizer.h"
#include "services/router/engine/engine_options.h"
#include "services/router/engine/sequence.h"

namespace tandem {

// Returns true if the audit chose the call: EngineOptions::audit_fraction of all calls, by a keyed
// hash of their numbers, so that clients cannot tell.
bool IsAudited(const EngineOptions& options, CallId call);

class ReplayQueue {
 public:
  static constexpr size_t kMaxReplays = 64;

  // `tokenizer` must outlive it.
  explicit ReplayQueue(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  // Takes up a finished request if its output must be the same when it is decoded again: it is
  // greedy or reproducible, lossless, and all its tokens were made with the same numerics. A full
  // queue drops its oldest replay: the numerics of that one may be gone for good.
  void Push(const Sequence& finished);
  // Takes back a replay that left its slot unfinished. It goes first.
  void Return(std::unique_ptr<Sequence> replay) { replays_.push_front(std::move(replay)); }
  // Returns the first replay of a request whose tokens were made with these numerics; null: none.
  std::unique_ptr<Sequence> Take(const std::string& numerics_id);
  void Clear() { replays_.clear(); }
  // Drops the replays of a prompt.
  void Drop(uint64_t prompt_hash) {
    std::erase_if(replays_,
                  [&](const auto& replay) { return replay->prompt_hash() == prompt_hash; });
  }
  bool empty() const { return replays_.empty(); }

 private:
  const Tokenizer* tokenizer_;
  std::deque<std::unique_ptr<Sequence>> replays_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ADMISSION_REPLAY_QUEUE_H_
