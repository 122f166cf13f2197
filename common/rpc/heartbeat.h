// Tells a hung worker from a busy one by its answers to pings (WorkerHealth in worker.proto).
#ifndef TANDEM_COMMON_RPC_HEARTBEAT_H_
#define TANDEM_COMMON_RPC_HEARTBEAT_H_

#include <cstdint>

namespace tandem {

// Time between two pings.
inline constexpr double kPingSeconds = 0.5;
// A worker ends a session that was pinged once and then was not pinged for this time. Everything
// that a lost router held must be free after five seconds, and this is one second less.
inline constexpr double kLeaseSeconds = 4;
// Default time without a sign of life after which a worker counts as hung, and the shortest time
// that may be configured.
inline constexpr double kHeartbeatTimeoutSeconds = 3;
inline constexpr double kShortestHeartbeatTimeoutSeconds = 1;

// The state of one worker as the process that pings it sees the worker. The class is pure: `now` is
// in seconds on any monotonic clock.
//
// A worker is hung if it does not answer (stopped, partitioned, deadlocked as a whole), or if it
// answers that it computes and makes no progress. A worker that computes for a long time and makes
// progress is busy. A worker that computes for other routers is busy too.
class Heartbeat {
 public:
  enum class State : uint8_t { kAlive, kSilent, kStuck };

  // Called when the first ping is sent.
  void Begin(double now) { *this = Heartbeat{now}; }

  // `progress` and `computing` are the fields of WatchPong.
  void OnPong(uint64_t progress, bool computing, double now) {
    answered_at_ = now;
    if (!computing || progress != progress_) moved_at_ = now;
    progress_ = progress;
  }

  // Called with every ping. Time in which it was not called does not count, because a process that
  // slept cannot know which answers came.
  State Check(double silence_limit_seconds, double standstill_limit_seconds, double now) {
    if (const double slept = now - checked_at_ - 2 * kPingSeconds; slept > 0) {
      answered_at_ += slept;
      moved_at_ += slept;
    }
    checked_at_ = now;
    if (now - answered_at_ >= silence_limit_seconds) return State::kSilent;
    return now - moved_at_ >= standstill_limit_seconds ? State::kStuck : State::kAlive;
  }

  Heartbeat() = default;

 private:
  explicit Heartbeat(double now) : answered_at_(now), moved_at_(now), checked_at_(now) {}

  double answered_at_ = 0;
  double moved_at_ = 0;  // when the worker last made progress or did not compute
  double checked_at_ = 0;
  uint64_t progress_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_RPC_HEARTBEAT_H_
