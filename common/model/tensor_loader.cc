#include "common/model/tensor_loader.h"

#include <cstring>
#include <optional>
#include <utility>

#include "common/status.h"
#include "kernels/dtype.h"
#include "kernels/embedding.h"

namespace tandem {
namespace {

std::optional<DType> WeightType(const std::string& name) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (name == Name(dtype)) return dtype;
  }
  return std::nullopt;
}

std::string ShapeText(std::span<const uint64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

// Reads entry i of an array that need not be aligned.
template <typename T>
int64_t Entry(const void* data, size_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + i * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

absl::StatusOr<std::vector<float>> TensorLoader::Vector(const std::string& name,
                                                        const NamedSize& size) const {
  TANDEM_ASSIGN_OR_RETURN(const Tensor* tensor, Weights(name, {&size, 1}));
  std::vector<float> values(size.value);
  const int32_t row = 0;
  Embed({.table = tensor->data,
         .dtype = *WeightType(tensor->dtype),
         .size = size.value,
         .ids = &row,
         .rows = 1,
         .out = values.data(),
         .out_stride = size.value});
  return values;
}

absl::StatusOr<Linear> TensorLoader::Matrix(const std::string& name, const NamedSize& out,
                                            const NamedSize& in, bool has_bias) const {
  const NamedSize sizes[] = {out, in};
  TANDEM_ASSIGN_OR_RETURN(const Tensor* tensor, Weights(name + ".weight", sizes));
  Linear linear;
  linear.weight = tensor->data;
  linear.dtype = *WeightType(tensor->dtype);
  linear.out_features = out.value;
  linear.in_features = in.value;
  if (has_bias) {
    TANDEM_ASSIGN_OR_RETURN(linear.bias, Vector(name + ".bias", out));
  }
  return linear;
}

absl::StatusOr<std::vector<int32_t>> TensorLoader::TokenIds(const std::string& name,
                                                            const NamedSize& size,
                                                            size_t vocabulary_size,
                                                            bool are_offsets) const {
  TANDEM_ASSIGN_OR_RETURN(const Tensor* tensor, OfShape(name, {&size, 1}));
  const bool is_long = tensor->dtype == "I64";
  if (!is_long && tensor->dtype != "I32") {
    return InvalidArgument(Where(name) + " is " + tensor->dtype + " (supported: I64, I32)");
  }
  std::vector<bool> is_taken(vocabulary_size);
  std::vector<int32_t> ids;
  for (size_t i = 0; i < size.value; ++i) {
    const int64_t entry =
        is_long ? Entry<int64_t>(tensor->data, i) : Entry<int32_t>(tensor->data, i);
    // Compared before it is added, so that no sum overflows.
    const int64_t begin = are_offsets ? -static_cast<int64_t>(i) : 0;
    const int64_t end = begin + static_cast<int64_t>(vocabulary_size);
    const bool is_id = entry >= begin && entry < end;
    const int64_t id = is_id ? entry - begin : -1;
    if (!is_id || is_taken[static_cast<size_t>(id)]) {
      return InvalidArgument(Where(name) + ": entry " + std::to_string(i) + " is " +
                             std::to_string(entry) + " (want different token ids under " +
                             std::to_string(vocabulary_size) +
                             (are_offsets ? ", each minus its place)" : ")"));
    }
    is_taken[static_cast<size_t>(id)] = true;
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

absl::StatusOr<const Tensor*> TensorLoader::OfShape(const std::string& name,
                                                    std::span<const NamedSize> sizes) const {
  TANDEM_ASSIGN_OR_RETURN(const Tensor* tensor, checkpoint_.Get(name));
  std::vector<uint64_t> want;
  std::string names;
  for (const NamedSize& size : sizes) {
    want.push_back(size.value);
    names += (names.empty() ? "" : ", ") + std::string(size.name);
  }
  if (tensor->shape != want) {
    return InvalidArgument(Where(name) + " has shape " + ShapeText(tensor->shape) +
                           ", config.json wants " + ShapeText(want) + " (" + names + ")");
  }
  return tensor;
}

absl::StatusOr<const Tensor*> TensorLoader::Weights(const std::string& name,
                                                    std::span<const NamedSize> sizes) const {
  TANDEM_ASSIGN_OR_RETURN(const Tensor* tensor, checkpoint_.Get(name));
  if (!WeightType(tensor->dtype)) {
    return InvalidArgument(Where(name) + " is " + tensor->dtype + " (supported: F32, BF16, F16)");
  }
  return OfShape(name, sizes);
}

std::string TensorLoader::Where(const std::string& name) const {
  return checkpoint_.FileOf(name) + ": tensor \"" + name + "\"";
}

}  // namespace tandem
