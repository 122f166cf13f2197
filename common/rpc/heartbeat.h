// Tells a hung worker from a busy one by its answers to pings (WorkerHealth in worker.proto).
#ifndef TANDEM_COMMON_RPC_HEARTBEAT_H_
#define TANDEM_COMMON_RPC_HEARTBEAT_H_

#include <cstdint>

namespace tandem {

// From ping to ping.
inline constexpr double kPingSeconds = 0.5;
// A session that was pinged, and then is not for so long, ends at the worker: a second less than the
// five after which all that a lost router held must be free.
inline constexpr double kLeaseSeconds = 4;
// Without a sign of life for so long a worker counts as hung, where nobody said otherwise; and the
// least that may be said.
inline constexpr double kHeartbeatTimeoutSeconds = 3;
inline constexpr double kShortestHeartbeatTimeoutSeconds = 1;

// One worker as the one who pings it sees it. Pure: `now` is seconds on any monotonic clock.
//
// A worker is hung when it does not answer (stopped, partitioned, deadlocked as a whole), or when
// it answers that it computes and makes no progress. One that computes for long and progresses is
// busy; so is one that computes for others.
class Heartbeat {
 public:
  enum class State : uint8_t { kAlive, kSilent, kStuck };

  // The first ping goes out.
  void Begin(double now) { *this = Heartbeat{now}; }

  // `progress` and `computing` as in WatchPong.
  void OnPong(uint64_t progress, bool computing, double now) {
    answered_at_ = now;
    if (!computing || progress != progress_) moved_at_ = now;
    progress_ = progress;
  }

  // Call it with every ping. Time in which it was not called does not count: whoever slept cannot
  // know what came.
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
  double moved_at_ = 0;  // when it last progressed, or did not compute
  double checked_at_ = 0;
  uint64_t progress_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_RPC_HEARTBEAT_H_
