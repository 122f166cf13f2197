// Keeps a fleet's list of worker pods up to date.
#ifndef TANDEM_SERVICES_ROUTER_SERVER_POD_LOOKUP_H_
#define TANDEM_SERVICES_ROUTER_SERVER_POD_LOOKUP_H_

#include <grpcpp/completion_queue.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/router/calls/background_work.h"
#include "services/router/fleet/fleet.h"
#include "services/router/fleet/pod_directory.h"

namespace tandem {

// Tells the fleet the pods of a directory: once if they are fixed, and otherwise again and again,
// since a name may get other addresses. A name service is asked in the background, as it may take
// long to answer. Everything else runs on the thread that polls the completion queue.
class PodLookup {
 public:
  // `fleet` and `queue` must outlive it. `seconds` go by from one look to the next.
  PodLookup(PodDirectory directory, double seconds, Fleet* fleet, grpc::CompletionQueue* queue);

  // The first look.
  void Start();
  // Looks if the time for that has come. `now` is MonotonicSeconds.
  void Tick(double now) {
    if (now >= look_at_) Look();
  }
  double NextDeadline() const { return look_at_; }

  // Looks no more, and tells the fleet nothing of what is still found.
  void Stop();
  // Stops, and leaves a look that is under way to itself: a name server may never answer.
  void Abandon();
  // Nothing comes through the completion queue any more: only then may that be shut down.
  bool quiet() const { return !background_.has_value() || background_->quiet(); }

 private:
  void Look();
  void OnFound(const absl::StatusOr<std::vector<PodSpec>>& found);

  const PodDirectory directory_;
  const double seconds_;
  Fleet* fleet_;
  grpc::CompletionQueue* queue_;
  std::optional<BackgroundWork> background_;  // none if the pods are fixed
  double look_at_ = std::numeric_limits<double>::infinity();
  std::string complaint_;  // why the last look failed: said once, not with every look
  bool stopped_ = false;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_SERVER_POD_LOOKUP_H_
