// Which sessions' routers still give signs of life.
#ifndef TANDEM_SERVICES_WORKER_SESSION_LEASES_H_
#define TANDEM_SERVICES_WORKER_SESSION_LEASES_H_

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace tandem {

// A session that was pinged once has a lease from then on; each ping renews it. One that never was
// has none. Sessions are named by the token of their Attach; 0 names none. Thread-safe: pings come
// on other threads than commands.
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

  // Forgets the leases that are over and says, and logs, which they were.
  std::vector<uint64_t> TakeExpired(Clock::time_point now);
  // When it pays to look again: no lease of now or later ends before. None: there is no session.
  std::optional<Clock::time_point> NextLook(Clock::time_point now) const;

 private:
  struct Lease {
    int sessions = 0;  // that were attached with this token
    std::optional<Clock::time_point> pinged_at;
  };

  const Clock::duration length_;
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, Lease> leases_;  // guarded by mutex_
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_SESSION_LEASES_H_
