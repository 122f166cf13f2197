// How a ring's descriptor gets from the verifier to the drafter: over a Unix socket, with
// SCM_RIGHTS.
#ifndef TANDEM_COMMON_RING_RING_SOCKET_H_
#define TANDEM_COMMON_RING_RING_SOCKET_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ring/unique_fd.h"

namespace tandem {

// The verifier's listener. Hands the descriptor of the ring that a peer names by its epoch to
// processes of the same user (SO_PEERCRED); the socket has mode 0600, in a folder that only the
// user can enter. Methods may be called by any thread.
class RingListener {
 public:
  // `folder` is made (0700) when it is missing, and refused when others can enter it. Empty: a new
  // one under $XDG_RUNTIME_DIR or the temporary folder, which goes with the listener.
  static absl::StatusOr<std::unique_ptr<RingListener>> Start(const std::filesystem::path& folder);
  ~RingListener();
  RingListener(const RingListener&) = delete;
  RingListener& operator=(const RingListener&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // Hands out (a duplicate of) `ring_fd` to who asks for `ring_epoch`, until it is withdrawn.
  absl::Status Offer(uint64_t ring_epoch, int ring_fd);
  // Returns pidfds of the processes that it was handed to, without a descriptor where the kernel
  // gave none; those that had ended by then are left out.
  std::vector<UniqueFd> Withdraw(uint64_t ring_epoch);

  // The socket, and the folder if it is the listener's own; the destructor does the same.
  void RemoveFiles();

 private:
  RingListener(std::filesystem::path path, std::filesystem::path own_folder, UniqueFd listener,
               UniqueFd stop);
  void Run();
  void Serve(UniqueFd peer);

  std::filesystem::path path_;
  std::filesystem::path own_folder_;  // removed at the end; empty: the caller's
  UniqueFd listener_;
  UniqueFd stop_;  // an eventfd
  std::mutex mutex_;
  struct Offered {
    UniqueFd fd;
    std::vector<UniqueFd> peers;
  };
  std::map<uint64_t, Offered> offers_;  // by ring epoch; guarded by mutex_
  std::thread thread_;
};

// The drafter's side: fetches the descriptor. UNAVAILABLE: nobody listens; NOT_FOUND: no such ring;
// PERMISSION_DENIED: the listener is another user's. Waits at most two seconds.
absl::StatusOr<UniqueFd> FetchRing(const std::filesystem::path& socket_path, uint64_t ring_epoch);

}  // namespace tandem

#endif  // TANDEM_COMMON_RING_RING_SOCKET_H_
