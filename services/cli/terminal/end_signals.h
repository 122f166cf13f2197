// Lets a command end by itself when the user wants it to end.
#ifndef TANDEM_SERVICES_CLI_TERMINAL_END_SIGNALS_H_
#define TANDEM_SERVICES_CLI_TERMINAL_END_SIGNALS_H_

#include <signal.h>

#include <ctime>

namespace tandem::cli {

// Signals such as Ctrl-C end the wait instead of the process.
class EndSignals {
 public:
  EndSignals() {
    sigemptyset(&signals_);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals_, number);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~EndSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  // Returns true if a signal arrived within this time.
  bool Wait(double seconds) const {
    const auto whole = static_cast<std::time_t>(seconds);
    const timespec timeout{
        .tv_sec = whole,
        .tv_nsec = static_cast<long>(1e9 * (seconds - static_cast<double>(whole)))};
    return sigtimedwait(&signals_, nullptr, &timeout) > 0;
  }

 private:
  sigset_t signals_{};
  sigset_t before_{};
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_TERMINAL_END_SIGNALS_H_
