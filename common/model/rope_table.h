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

  // Makes positions [0, positions) available. Computes in double and rounds once.
  void Reserve(size_t positions);

  // [positions, head_size] f32: the cosines of the head_size / 2 angles, then their sines
  // (kernels/rope.h). Valid until the next Reserve.
  const float* data() const { return table_.data(); }

 private:
  size_t max_positions_;
  std::vector<double> frequencies_;  // radians per position
  std::vector<float> table_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_ROPE_TABLE_H_
