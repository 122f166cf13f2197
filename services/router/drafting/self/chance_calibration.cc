#include "services/router/drafting/self/chance_calibration.h"

#include <algorithm>

namespace tandem {
namespace {

// Chances that lie between two of these have one bucket.
constexpr std::array<double, 11> kEdges = {0.01, 0.02, 0.05, 0.1, 0.2, 0.35,
                                           0.5,  0.65, 0.8,  0.9, 0.97};
// The stated chance counts like this number of tests.
constexpr double kStatedWeight = 6;
// A bucket forgets what lies further back than about this number of tests.
constexpr double kMostTests = 2000;

}  // namespace

size_t ChanceCalibration::BucketOf(double stated) {
  static_assert(kNumBuckets == kEdges.size() + 1);
  return static_cast<size_t>(std::upper_bound(kEdges.begin(), kEdges.end(), stated) -
                             kEdges.begin());
}

double ChanceCalibration::Corrected(double stated) const {
  const Bucket& bucket = buckets_[BucketOf(stated)];
  // The ratio of what came to what was stated is the correction. Within a bucket, a larger chance
  // stays the larger one.
  const double ratio =
      (bucket.accepted + kStatedWeight * stated) / (bucket.stated + kStatedWeight * stated);
  return std::clamp(stated * ratio, 0.0, 1.0);
}

void ChanceCalibration::Observe(std::span<const float> stated, std::span<const int32_t> parents,
                                std::span<const uint32_t> accepted) {
  const auto is_accepted = [&](int64_t token) {
    return token < 0 || std::find(accepted.begin(), accepted.end(), token) != accepted.end();
  };
  for (size_t i = 0; i < stated.size(); ++i) {
    const int64_t parent = parents.empty() ? static_cast<int64_t>(i) - 1 : parents[i];
    if (!is_accepted(parent)) continue;
    Bucket& bucket = buckets_[BucketOf(stated[i])];
    if (bucket.tested >= kMostTests) {
      bucket.tested /= 2;
      bucket.accepted /= 2;
      bucket.stated /= 2;
    }
    bucket.tested += 1;
    bucket.stated += stated[i];
    if (is_accepted(static_cast<int64_t>(i))) bucket.accepted += 1;
  }
}

}  // namespace tandem
