// The leases of sessions: a router that sends no pings loses its session.
#ifndef TANDEM_SERVICES_WORKER_SESSION_SESSION_LEASES_H_
#define TANDEM_SERVICES_WORKER_SESSION_SESSION_LEASES_H_

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace tandem {

// A session has a lease from its first ping on, and each ping renews the lease. A session that was
// never pinged has no lease. The token of its Attach names a session; 0 names no session.
// Thread-safe, because pings and commands arrive on different threads.
class SessionLeases {
 public:
  using Clock = std::chrono::steady_clock;

  explicit SessionLeases(double seconds)
      : length_(
            std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}

  double seconds() const { return std::chrono::duration<double>(length_).count(); }

  void Open(uint64_t token);
  void Close(uint64_t token);
  void Renew(uint64_t token, Clock::time_point now);

  // Forgets the leases that have expired, logs them, and returns their tokens.
  std::vector<uint64_t> TakeExpired(Clock::time_point now);
  // Returns the time to look again: no present or future lease expires before this time. None:
  // there is no session.
  std::optional<Clock::time_point> NextLook(Clock::time_point now) const;

 private:
  struct Lease {
    int sessions = 0;  // number of sessions that were attached with this token
    std::optional<Clock::time_point> pinged_at;
  };

  const Clock::duration length_;
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, Lease> leases_;  // guarded by mutex_
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_SESSION_SESSION_LEASES_H_
