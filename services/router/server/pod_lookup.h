// Keeps a fleet's list of worker pods up to date.
#ifndef TANDEM_SERVICES_ROUTER_SERVER_POD_LOOKUP_H_
#define TANDEM_SERVICES_ROUTER_SERVER_POD_LOOKUP_H_

#include <grpcpp/completion_queue.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/router/client_calls/background_work.h"
#include "services/router/fleet/fleet.h"
#include "services/router/fleet/pod_directory.h"

namespace tandem {

// Tells the fleet the pods of a directory. Fixed pods are told once. Otherwise the lookup is
// repeated, because a name may get other addresses. A name service is asked in the background,
// because it can answer slowly. Everything else runs on the thread that polls the completion queue.
class PodLookup {
 public:
  // `fleet` and `queue` must outlive the object. `seconds` is the time from one lookup to the next.
  PodLookup(PodDirectory directory, double seconds, Fleet* fleet, grpc::CompletionQueue* queue);

  // Starts the first lookup.
  void Start();
  // Starts a lookup if one is due. `now` is MonotonicSeconds.
  void Tick(double now) {
    if (now >= look_at_) Look();
  }
  double NextDeadline() const { return look_at_; }

  // Starts no more lookups, and ignores the result of a lookup that is under way.
  void Stop();
  // Stops, and does not wait for a lookup that is under way, because a name server may never
  // answer.
  void Abandon();
  // Returns true if nothing comes through the completion queue any more. Only then may the queue be
  // shut down.
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
  std::string complaint_;  // error of the last lookup; not logged again with every lookup
  bool stopped_ = false;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_SERVER_POD_LOOKUP_H_
