// What passes keep of each row for a drafter beside the model.
#ifndef TANDEM_COMMON_MODEL_ROW_FEATURES_H_
#define TANDEM_COMMON_MODEL_ROW_FEATURES_H_

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tandem {

// The feature of a row: states of its residual stream, one after the other, each [hidden] f32. It
// lies on the row's page, after the keys and values.
struct RowFeatures {
  struct Part {
    // The state that enters this layer. The number of layers stands for what leaves the last one.
    size_t layer = 0;
    bool is_normed = false;  // the final norm of the state, which the output product takes

    bool operator==(const Part&) const = default;
  };
  std::vector<Part> parts;  // empty: nothing is kept

  // Says whether a part is taken before this layer.
  bool Has(size_t layer) const {
    return std::any_of(parts.begin(), parts.end(),
                       [&](const Part& part) { return part.layer == layer; });
  }

  bool operator==(const RowFeatures&) const = default;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_ROW_FEATURES_H_
