// Takes weights out of a checkpoint, with checks of their types and shapes.
#ifndef TANDEM_COMMON_MODEL_TENSOR_LOADER_H_
#define TANDEM_COMMON_MODEL_TENSOR_LOADER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/checkpoint/checkpoint.h"
#include "common/model/linear.h"

namespace tandem {

// A size, and where it comes from, for messages: its name in config.json.
struct NamedSize {
  size_t value;
  const char* name;
};

// All errors name the file and the tensor.
class TensorLoader {
 public:
  // `checkpoint` must outlive the loader, and the matrices that it loads.
  explicit TensorLoader(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  // Returns a copy of a vector as F32.
  absl::StatusOr<std::vector<float>> Vector(const std::string& name, const NamedSize& size) const;
  // Returns the matrix `name`.weight, which stays in the file, and the vector `name`.bias if
  // `has_bias`.
  absl::StatusOr<Linear> Matrix(const std::string& name, const NamedSize& out, const NamedSize& in,
                                bool has_bias) const;
  // Returns different token ids, each in [0, vocabulary_size), of type I64 or I32. `are_offsets`:
  // the tensor's entry i is the id minus i.
  absl::StatusOr<std::vector<int32_t>> TokenIds(const std::string& name, const NamedSize& size,
                                                size_t vocabulary_size,
                                                bool are_offsets = false) const;

 private:
  absl::StatusOr<const Tensor*> OfShape(const std::string& name,
                                        std::span<const NamedSize> sizes) const;
  absl::StatusOr<const Tensor*> Weights(const std::string& name,
                                        std::span<const NamedSize> sizes) const;
  std::string Where(const std::string& name) const;

  const Checkpoint& checkpoint_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_TENSOR_LOADER_H_
