// The time for which other work on the machine interrupts the workers' batches.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_COSTS_INTERRUPTIONS_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_COSTS_INTERRUPTIONS_H_

#include <array>
#include <cstddef>

namespace tandem {

enum class BatchKind { kPropose, kVerify };

// A few long interruptions make up most of the time, so the mean needs hundreds of batches. The
// batches of both kinds are therefore averaged together, and a kind has a mean of its own as far as
// it had many batches lately. If nothing was drafted for long, a Propose is thus expected to be
// interrupted like a Verify, and not like the last Propose, which may be why drafting ended.
class Interruptions {
 public:
  // A batch was interrupted for `seconds` in all, which is 0 for most batches.
  void Observe(BatchKind kind, double seconds);
  // Makes all batches one round older.
  void Age();

  // Returns the expected seconds in one batch of the kind.
  double Seconds(BatchKind kind) const;

 private:
  struct Sum {
    double batches = 0;  // both fade
    double seconds = 0;
  };

  double batches_ = 0;  // number of batches of both kinds so far
  double mean_ = 0;     // seconds in a batch of either kind
  std::array<Sum, 2> kinds_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_COSTS_INTERRUPTIONS_H_
