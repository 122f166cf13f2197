// Ctrl-C, and the other signals to end, while a chat waits or an answer comes.
#ifndef TANDEM_SERVICES_CLI_CHAT_INTERRUPT_H_
#define TANDEM_SERVICES_CLI_CHAT_INTERRUPT_H_

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace tandem::cli {

// Any thread may raise it. A reader of lines waits for it beside the input.
class Interrupt {
 public:
  Interrupt() : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Interrupt() { close(wake_); }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  void Raise() {
    is_raised_ = true;
    const uint64_t one = 1;
    (void)!write(wake_, &one, sizeof(one));  // cannot block: the counter is far from its limit
  }
  // Raises it for good: the program ends.
  void End() {
    is_over_ = true;
    Raise();
  }

  // Returns whether it was raised since the last call.
  bool Take() {
    uint64_t ignored = 0;
    (void)!read(wake_, &ignored, sizeof(ignored));
    return is_raised_.exchange(false);
  }
  bool is_raised() const { return is_raised_; }
  bool is_over() const { return is_over_; }

  // Readable while it is raised.
  int descriptor() const { return wake_; }

 private:
  const int wake_;
  std::atomic<bool> is_raised_ = false;
  std::atomic<bool> is_over_ = false;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_CHAT_INTERRUPT_H_
