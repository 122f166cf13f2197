// The drafters that the engine knows, by the names of the API, flags and metrics.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_DRAFTER_SET_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_DRAFTER_SET_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

enum class Drafter : uint8_t {
  kModel,       // a draft model, in the draft worker
  kPrediction,  // lookup in the output that the client predicts
  kSuffix,      // lookup in prompt and output: the longest match
  kNgram,       // lookup in the newest tokens: what followed most often
  kRetrieval,   // lookup in a corpus
  kRecycling,   // the target's own favorites after each token
  kMedusa,      // heads of the target with output products of their own, in the verifier
  kBlockwise,   // heads of the target with the target's output product, in the verifier
  kEagle,       // a layer that guesses the target's features, in the verifier
  kLayerSkip,   // the target without some of its layers, in the verifier
  kPass,        // the target with look-ahead embeddings, in the verifier
};
inline constexpr size_t kNumDrafters = 11;
inline constexpr std::string_view kDrafterNames[kNumDrafters] = {
    "model",  "prediction", "suffix", "ngram",      "retrieval", "recycling",
    "medusa", "blockwise",  "eagle",  "layer_skip", "pass"};
// A verifier has at most one of these.
inline constexpr Drafter kSelfDrafters[] = {Drafter::kMedusa, Drafter::kBlockwise, Drafter::kEagle,
                                            Drafter::kLayerSkip, Drafter::kPass};
inline std::string DrafterName(Drafter drafter) {
  return std::string(kDrafterNames[static_cast<size_t>(drafter)]);
}
inline bool IsSelfDrafter(Drafter drafter) {
  return std::find(std::begin(kSelfDrafters), std::end(kSelfDrafters), drafter) !=
         std::end(kSelfDrafters);
}
// Whether the drafter finds places in a text that agree with the newest tokens.
inline bool FindsMatches(Drafter drafter) {
  return drafter == Drafter::kPrediction || drafter == Drafter::kSuffix ||
         drafter == Drafter::kNgram || drafter == Drafter::kRetrieval;
}
// None: no drafter has this name.
inline std::optional<Drafter> FindDrafter(std::string_view name) {
  for (size_t i = 0; i < kNumDrafters; ++i) {
    if (kDrafterNames[i] == name) return static_cast<Drafter>(i);
  }
  return std::nullopt;
}

class DrafterSet {
 public:
  constexpr DrafterSet() = default;
  constexpr explicit DrafterSet(Drafter drafter) { Add(drafter); }

  constexpr void Add(Drafter drafter) { bits_ |= Bit(drafter); }
  constexpr void Remove(Drafter drafter) { bits_ &= ~Bit(drafter); }
  constexpr bool contains(Drafter drafter) const { return (bits_ & Bit(drafter)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool operator==(const DrafterSet&) const = default;

 private:
  static constexpr uint32_t Bit(Drafter drafter) {
    return uint32_t{1} << static_cast<uint32_t>(drafter);
  }
  uint32_t bits_ = 0;
};

// What a server uses by itself: the draft model, and the prediction of a request that has one.
constexpr DrafterSet DefaultDrafters() {
  DrafterSet drafters(Drafter::kModel);
  drafters.Add(Drafter::kPrediction);
  return drafters;
}

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_DRAFTER_SET_H_
