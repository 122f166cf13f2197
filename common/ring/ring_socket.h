// How the descriptor of a ring gets from the verifier to the drafter: over a Unix socket, with
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

// The verifier's listener. A peer names a ring by its epoch, and the listener hands out the ring's
// descriptor if the peer is a process of the same user (SO_PEERCRED). The socket has mode 0600 and
// is in a folder that only the user can enter. Methods may be called by any thread.
class RingListener {
 public:
  // `folder` is made (0700) if it is missing, and refused if other users can enter it. If `folder`
  // is empty, a new one is made under $XDG_RUNTIME_DIR or the temporary folder, and the listener
  // removes it.
  static absl::StatusOr<std::unique_ptr<RingListener>> Start(const std::filesystem::path& folder);
  ~RingListener();
  RingListener(const RingListener&) = delete;
  RingListener& operator=(const RingListener&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // Hands out duplicates of `ring_fd` to peers that ask for `ring_epoch`, until Withdraw.
  absl::Status Offer(uint64_t ring_epoch, int ring_fd);
  // Ends the offer. Returns pidfds of the processes that the ring was handed to. A pidfd has no
  // descriptor if the kernel gave none. Processes that have already ended are left out.
  std::vector<UniqueFd> Withdraw(uint64_t ring_epoch);

  // Removes the socket, and the folder if the listener made it. The destructor does the same.
  void RemoveFiles();

 private:
  RingListener(std::filesystem::path path, std::filesystem::path own_folder, UniqueFd listener,
               UniqueFd stop);
  void Run();
  void Serve(UniqueFd peer);

  std::filesystem::path path_;
  std::filesystem::path own_folder_;  // removed at the end; empty if the folder is the caller's
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

// For the drafter: fetches the descriptor. Waits at most two seconds. UNAVAILABLE: nobody listens.
// NOT_FOUND: no such ring. PERMISSION_DENIED: the listener belongs to another user.
absl::StatusOr<UniqueFd> FetchRing(const std::filesystem::path& socket_path, uint64_t ring_epoch);

}  // namespace tandem

#endif  // TANDEM_COMMON_RING_RING_SOCKET_H_
