#include "services/router/drafting/costs/interruptions.h"

#include <algorithm>

namespace tandem {
namespace {

// Number of batches over which the mean of both kinds is formed. It begins as if there had been
// kInitialBatches without interruptions.
constexpr double kSharedMemory = 300;
constexpr double kInitialBatches = 20;
// Number of batches over which the mean of one kind is formed. The mean of both kinds counts like
// kSharedBatches batches beside it at first, and half as much once the kind has many of its own.
constexpr double kKindMemory = 400;
constexpr double kSharedBatches = 100;
// Number of rounds over which the batches of one kind are forgotten.
constexpr double kRoundsMemory = 2000;

}  // namespace

void Interruptions::Observe(BatchKind kind, double seconds) {
  ++batches_;
  mean_ += (seconds - mean_) / std::min(batches_ + kInitialBatches, kSharedMemory);
  Sum& sum = kinds_[static_cast<size_t>(kind)];
  sum.batches += 1 - sum.batches / kKindMemory;
  sum.seconds += seconds - sum.seconds / kKindMemory;
}

void Interruptions::Age() {
  for (Sum& sum : kinds_) {
    sum.batches -= sum.batches / kRoundsMemory;
    sum.seconds -= sum.seconds / kRoundsMemory;
  }
}

double Interruptions::Seconds(BatchKind kind) const {
  const Sum& sum = kinds_[static_cast<size_t>(kind)];
  const double shared = kSharedBatches * (1 - 0.5 * sum.batches / kKindMemory);
  return (sum.seconds + shared * mean_) / (sum.batches + shared);
}

}  // namespace tandem
