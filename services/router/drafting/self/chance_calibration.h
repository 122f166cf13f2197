// How often a drafter is right when it states a chance.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_SELF_CHANCE_CALIBRATION_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_SELF_CHANCE_CALIBRATION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tandem {

// Counts of tokens by their stated chances, over all requests of a mode. Older counts fade. A
// drafter that is trained on samples is sure of too little where the target decodes greedily, and
// of too much where the text is another one.
class ChanceCalibration {
 public:
  // Returns P(a token is accepted | its parent was), if the drafter believes in `stated`. Before
  // anything was counted, this is `stated`.
  double Corrected(double stated) const;

  // A draft was judged. `stated[i]` is what the drafter believed of token i, and `accepted` names
  // the accepted path. `parents` is empty for a chain. The children of every accepted token, and
  // those of the beginning, were tested.
  void Observe(std::span<const float> stated, std::span<const int32_t> parents,
               std::span<const uint32_t> accepted);

 private:
  struct Bucket {
    double tested = 0;
    double accepted = 0;
    double stated = 0;  // sum of the stated chances of the tested tokens
  };
  static constexpr size_t kNumBuckets = 12;
  static size_t BucketOf(double stated);

  std::array<Bucket, kNumBuckets> buckets_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_SELF_CHANCE_CALIBRATION_H_
