#include "services/router/server/pod_lookup.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "common/monotonic_seconds.h"

namespace tandem {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Seconds from one look to the next while no pod is known, at most: a router that waits for its
// first pods serves nobody.
constexpr double kSecondsWithoutPods = 1;

}  // namespace

PodLookup::PodLookup(PodDirectory directory, double seconds, Fleet* fleet,
                     grpc::CompletionQueue* queue)
    : directory_(std::move(directory)), seconds_(seconds), fleet_(fleet), queue_(queue) {}

void PodLookup::Start() {
  if (directory_.is_fixed()) {
    OnFound(directory_.Find());
  } else {
    background_.emplace(queue_);
    Look();
  }
}

void PodLookup::Look() {
  look_at_ = kNever;  // one look at a time
  auto found = std::make_shared<absl::StatusOr<std::vector<PodSpec>>>();
  // A copy: the look may outlive this.
  background_->Run([directory = directory_, found] { *found = directory.Find(); },
                   [this, found] { OnFound(*found); });
}

void PodLookup::OnFound(const absl::StatusOr<std::vector<PodSpec>>& found) {
  if (stopped_) return;
  const double now = MonotonicSeconds();
  if (!directory_.is_fixed()) {
    look_at_ = now + (fleet_->num_pods() > 0 ? seconds_ : std::min(seconds_, kSecondsWithoutPods));
  }
  if (found.ok()) {
    complaint_.clear();
    fleet_->SetPods(*found, now);
    return;
  }
  // Pods that were found stay: one that is really gone is noticed by its connection.
  const std::string complaint(found.status().message());
  if (complaint != complaint_) spdlog::warn("worker pods: {}", complaint);
  complaint_ = complaint;
}

void PodLookup::Stop() {
  stopped_ = true;
  look_at_ = kNever;
}

void PodLookup::Abandon() {
  Stop();
  if (background_.has_value()) background_->Abandon();
}

}  // namespace tandem
