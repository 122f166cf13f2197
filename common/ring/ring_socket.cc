#include "common/ring/ring_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "common/status.h"
#include "common/unix_peer.h"

namespace tandem {
namespace {

// The answer to the 8 bytes of an epoch: one byte, with the descriptor beside it if it is kFound.
enum Answer : char { kFound = 1, kNoSuchRing = 2 };

// Pause after a failure of accept() for lack of a descriptor. poll() would report the same
// connection again at once.
constexpr int kAcceptPauseMilliseconds = 50;

std::string LastError() { return std::strerror(errno); }

absl::StatusOr<sockaddr_un> ToSockaddr(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.native().empty() || path.native().size() >= sizeof(address.sun_path)) {
    return InvalidArgument("ring socket: the path has " + std::to_string(path.native().size()) +
                           " bytes, want 1 … " + std::to_string(sizeof(address.sun_path) - 1) +
                           " (use a shorter --ring-dir)");
  }
  std::memcpy(address.sun_path, path.c_str(), path.native().size());
  return address;
}

void SetTimeouts(int fd, int milliseconds) {
  const timeval timeout{.tv_sec = milliseconds / 1000, .tv_usec = milliseconds % 1000 * 1000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
}

bool PeerIsSameUser(int fd) {
  const std::optional<ucred> peer = UnixPeerOf(fd);
  return peer.has_value() && peer->uid == geteuid();
}

// Returns a pidfd of the process at the other end, or nullopt if the process has ended. The result
// is empty if there is no pidfd (an old kernel, a sandbox); the end of the process then stays
// unknown.
std::optional<UniqueFd> ProcessOf(int fd) {
  const std::optional<ucred> peer = UnixPeerOf(fd);
  if (!peer.has_value()) return UniqueFd();
  UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, peer->pid, 0)));
  if (!process && errno == ESRCH) return std::nullopt;
  return process;
}

absl::Status CheckFolder(const std::filesystem::path& folder) {
  if (mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return InvalidArgument("--ring-dir: cannot create " + folder.string() + ": " + LastError());
  }
  struct stat info {};
  if (lstat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return InvalidArgument("--ring-dir: " + folder.string() + " is no folder");
  }
  if (info.st_uid != geteuid() || (info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return InvalidArgument("--ring-dir: " + folder.string() +
                           " can be entered by others; want mode 0700 and the same owner");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::filesystem::path> MakeOwnFolder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  std::error_code error;
  std::filesystem::path parent = runtime != nullptr && access(runtime, W_OK) == 0
                                     ? std::filesystem::path(runtime)
                                     : std::filesystem::temp_directory_path(error);
  std::string name = (parent / "tandem-ring-XXXXXX").string();
  if (error || mkdtemp(name.data()) == nullptr) {
    return Unavailable("ring socket: cannot make a folder " + name + ": " + LastError());
  }
  return std::filesystem::path(name);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RingListener>> RingListener::Start(
    const std::filesystem::path& folder) {
  std::filesystem::path own_folder;
  if (folder.empty()) {
    TANDEM_ASSIGN_OR_RETURN(own_folder, MakeOwnFolder());
  } else {
    TANDEM_RETURN_IF_ERROR(CheckFolder(folder));
  }
  const std::filesystem::path path =
      (folder.empty() ? own_folder : folder) / ("ring-" + std::to_string(getpid()) + ".sock");
  TANDEM_ASSIGN_OR_RETURN(const sockaddr_un address, ToSockaddr(path));
  UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  UniqueFd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  unlink(path.c_str());  // an earlier process with the same id may have left it
  if (!listener || !stop ||
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0 || listen(listener.get(), 16) != 0) {
    return Unavailable("ring socket: cannot listen on " + path.string() + ": " + LastError());
  }
  return std::unique_ptr<RingListener>(
      new RingListener(path, own_folder, std::move(listener), std::move(stop)));
}

RingListener::RingListener(std::filesystem::path path, std::filesystem::path own_folder,
                           UniqueFd listener, UniqueFd stop)
    : path_(std::move(path)),
      own_folder_(std::move(own_folder)),
      listener_(std::move(listener)),
      stop_(std::move(stop)),
      thread_([this] { Run(); }) {}

RingListener::~RingListener() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
  RemoveFiles();
}

void RingListener::RemoveFiles() {
  unlink(path_.c_str());
  if (!own_folder_.empty()) rmdir(own_folder_.c_str());
}

absl::Status RingListener::Offer(uint64_t ring_epoch, int ring_fd) {
  UniqueFd fd(fcntl(ring_fd, F_DUPFD_CLOEXEC, 0));
  if (!fd) return ResourceExhausted("ring socket: cannot duplicate a descriptor: " + LastError());
  const std::lock_guard<std::mutex> lock(mutex_);
  offers_.insert_or_assign(ring_epoch, Offered{std::move(fd), {}});
  return absl::OkStatus();
}

std::vector<UniqueFd> RingListener::Withdraw(uint64_t ring_epoch) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto offer = offers_.extract(ring_epoch);
  return offer.empty() ? std::vector<UniqueFd>() : std::move(offer.mapped().peers);
}

void RingListener::Run() {
  while (true) {
    pollfd fds[2] = {{.fd = listener_.get(), .events = POLLIN, .revents = 0},
                     {.fd = stop_.get(), .events = POLLIN, .revents = 0}};
    if (poll(fds, 2, -1) < 0 && errno != EINTR) return;
    if (fds[1].revents != 0) return;
    if (fds[0].revents == 0) continue;
    UniqueFd peer(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (peer) {
      Serve(std::move(peer));
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      poll(&fds[1], 1, kAcceptPauseMilliseconds);
    }
  }
}

void RingListener::Serve(UniqueFd peer) {
  if (!PeerIsSameUser(peer.get())) return;
  SetTimeouts(peer.get(), 200);
  uint64_t ring_epoch = 0;
  if (recv(peer.get(), &ring_epoch, sizeof(ring_epoch), MSG_WAITALL) != sizeof(ring_epoch)) return;

  const std::lock_guard<std::mutex> lock(mutex_);
  const auto offer = offers_.find(ring_epoch);
  char answer = offer != offers_.end() ? kFound : kNoSuchRing;
  iovec data{.iov_base = &answer, .iov_len = 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (answer == kFound) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = offer->second.fd.get();
    std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
    // This comes before the peer can have the ring open.
    if (std::optional<UniqueFd> process = ProcessOf(peer.get())) {
      offer->second.peers.push_back(*std::move(process));
    }
  }
  // One byte into an empty buffer never waits. A peer that went away asks again if it still wants
  // the ring.
  (void)!sendmsg(peer.get(), &message, MSG_NOSIGNAL);
}

absl::StatusOr<UniqueFd> FetchRing(const std::filesystem::path& socket_path, uint64_t ring_epoch) {
  TANDEM_ASSIGN_OR_RETURN(const sockaddr_un address, ToSockaddr(socket_path));
  UniqueFd peer(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!peer) return ResourceExhausted("ring socket: " + LastError());
  SetTimeouts(peer.get(), 2000);
  if (connect(peer.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return Unavailable("ring socket: cannot connect: " + LastError());
  }
  if (!PeerIsSameUser(peer.get())) {
    return absl::PermissionDeniedError("ring socket: the listener is a process of another user");
  }
  if (send(peer.get(), &ring_epoch, sizeof(ring_epoch), MSG_NOSIGNAL) != sizeof(ring_epoch)) {
    return Unavailable("ring socket: cannot send: " + LastError());
  }
  char answer = 0;
  iovec data{.iov_base = &answer, .iov_len = 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t received = recvmsg(peer.get(), &message, MSG_CMSG_CLOEXEC);
  UniqueFd fd;
  if (const cmsghdr* rights = CMSG_FIRSTHDR(&message);
      received == 1 && rights != nullptr && rights->cmsg_level == SOL_SOCKET &&
      rights->cmsg_type == SCM_RIGHTS && rights->cmsg_len == CMSG_LEN(sizeof(int))) {
    int raw = -1;
    std::memcpy(&raw, CMSG_DATA(rights), sizeof(raw));
    fd = UniqueFd(raw);
  }
  if (received == 1 && answer == kNoSuchRing) {
    return NotFound("ring socket: no ring of epoch " + std::to_string(ring_epoch));
  }
  if (received != 1 || answer != kFound || !fd) {
    return Unavailable("ring socket: no descriptor came");
  }
  return fd;
}

}  // namespace tandem
