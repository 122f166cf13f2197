// Tells from one worker's pongs and batch times whether the worker hangs.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_SESSIONS_HANG_DETECTOR_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_SESSIONS_HANG_DETECTOR_H_

#include <limits>
#include <string>

#include "common/rpc/heartbeat.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// The limit is `timeout_seconds` or ten usual batches of the worker, whichever is longer. The usual
// batch and the patience outlive a session.
class HangDetector {
 public:
  // With `timeout_seconds` 0, no worker counts as hung.
  explicit HangDetector(double timeout_seconds) : timeout_seconds_(timeout_seconds) {}

  // Called when the first ping of a session is sent.
  void Begin(double now);
  // Called when the session ends.
  void End() { ping_at_ = std::numeric_limits<double>::infinity(); }
  // Time of the next ping. Infinity: no session is watched.
  double ping_at() const { return ping_at_; }
  void OnPong(const v1::WatchPong& pong, double now) {
    heartbeat_.OnPong(pong.progress(), pong.computing(), now);
  }
  // `seconds` is the time that the worker says that it computed. Other values than sensible ones
  // only reset the patience.
  void OnBatchDone(double seconds);
  // Called at ping_at(). Returns why the worker counts as hung. If the text is empty, the worker
  // does not, and the caller sends a ping.
  std::string Check(double now);

 private:
  double timeout_seconds_;
  double ping_at_ = std::numeric_limits<double>::infinity();
  Heartbeat heartbeat_;
  double usual_batch_seconds_ = 0;  // 0: no batch was done yet
  // Factor of the limit for a worker that computes without progress. Doubles with each worker that
  // was given up for this reason, until a batch is done.
  double patience_ = 1;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_SESSIONS_HANG_DETECTOR_H_
