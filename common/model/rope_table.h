// Cosines and sines of RoPE's angles, by position.
#ifndef TANDEM_COMMON_MODEL_ROPE_TABLE_H_
#define TANDEM_COMMON_MODEL_ROPE_TABLE_H_

#include <cstddef>
#include <vector>

#include "common/model/model_description.h"

namespace tandem {

class RopeTable {
 public:
  explicit RopeTable(const ModelDescription& model);

  // Makes positions [0, positions) available; computes in double, rounds once.
  void Reserve(size_t positions);

  // [positions, head_size] f32: cosines of the head_size / 2 angles, then sines (kernels/rope.h).
  // Until the next Reserve.
  const float* data() const { return table_.data(); }

 private:
  size_t max_positions_;
  std::vector<double> frequencies_;  // radians per position
  std::vector<float> table_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_ROPE_TABLE_H_
