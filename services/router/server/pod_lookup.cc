#include "services/router/server/pod_lookup.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "common/monotonic_seconds.h"

namespace tandem {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Largest time from one lookup to the next while no pod is known, because a router without pods
// serves nobody.
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
  look_at_ = kNever;  // one lookup at a time
  auto found = std::make_shared<absl::StatusOr<std::vector<PodSpec>>>();
  // A copy of the directory, because the lookup may outlive the object.
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
  // Known pods stay. If a pod is really gone, its connection shows that.
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
