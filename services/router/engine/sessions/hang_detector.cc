#include "services/router/engine/sessions/hang_detector.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

// Batches for which a slow worker is waited for.
constexpr double kHungBatches = 10;
constexpr double kNewestBatchShare = 0.1;      // share of the newest batch in the usual batch
constexpr double kLongestBatchSeconds = 3600;  // batch time from which a worker is not believed
constexpr double kMostPatience = 64;

}  // namespace

void HangDetector::Begin(double now) {
  heartbeat_.Begin(now);
  ping_at_ = now + kPingSeconds;
}

void HangDetector::OnBatchDone(double seconds) {
  patience_ = 1;
  if (!(seconds > 0 && seconds < kLongestBatchSeconds)) return;
  usual_batch_seconds_ =
      usual_batch_seconds_ == 0
          ? seconds
          : usual_batch_seconds_ + kNewestBatchShare * (seconds - usual_batch_seconds_);
}

std::string HangDetector::Check(double now) {
  const double limit = timeout_seconds_ > 0
                           ? std::max(timeout_seconds_, kHungBatches * usual_batch_seconds_)
                           : std::numeric_limits<double>::infinity();
  const double standstill_limit = limit * patience_;
  switch (heartbeat_.Check(limit, standstill_limit, now)) {
    case Heartbeat::State::kAlive:
      break;
    case Heartbeat::State::kSilent:
      return absl::StrCat("the worker hangs: it gave no sign of life for ", limit, " s");
    case Heartbeat::State::kStuck:
      // The worker may only be slower than the limit. A second try must not end in the same place.
      patience_ = std::min(2 * patience_, kMostPatience);
      return absl::StrCat("the worker hangs: it computed without progress for ", standstill_limit,
                          " s");
  }
  ping_at_ = now + kPingSeconds;
  return {};
}

}  // namespace tandem
