// A tensor of an inflated model or of inflated heads: a part comes from the small one, and the rest
// is filled.
#ifndef TANDEM_BENCH_INFLATE_INFLATED_TENSOR_H_
#define TANDEM_BENCH_INFLATE_INFLATED_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/dtype.h"

namespace tandem {

// Rows and columns that the model lacks: they are filled with random numbers (kAdded) or with zeros
// (kZero).
inline constexpr int64_t kAdded = -1;
inline constexpr int64_t kZero = -2;

// A matrix (or a vector, which is one row). A part comes from the small model, and the rest is
// filled.
struct InflatedTensor {
  std::string name;
  std::vector<uint64_t> shape;  // shape in the file
  size_t rows = 0;
  size_t cols = 0;
  const void* source = nullptr;  // [?, source_cols]; null: no part comes from the model
  DType source_dtype = DType::kBF16;
  size_t source_cols = 0;
  std::vector<int64_t> row_of = {};  // [rows] row of the source, kAdded or kZero
  std::vector<int64_t> col_of = {};  // [cols] column of the source, kAdded or kZero
  double scale = 1;
  double fill_deviation = 0;  // deviation of the uniform numbers outside of the model; 0: zeros
  std::optional<std::pair<size_t, float>> mark = {};  // column and value, in rows of the model
  std::optional<std::pair<size_t, float>> added_mark = {};  // column and value, in added rows
  // Token ids, or a mask of tokens. They are written as they are, and have nothing of the above but
  // name and shape.
  std::vector<int64_t> ids = {};
  std::vector<uint8_t> mask = {};  // 0 or 1 each. PRECOND: no tensor follows, unaligned
};

// Returns 0, 1, …, count - 1, and then kAdded.
std::vector<int64_t> FirstPlaces(size_t count, size_t size);

// Writes tensors as safetensors of BF16 or F32. `on_progress`, if set, gets the number of written
// bytes and the number of all bytes. UNAVAILABLE: the file cannot be written.
absl::Status WriteTensors(const std::filesystem::path& path,
                          const std::vector<InflatedTensor>& tensors, DType dtype,
                          const std::function<void(uint64_t, uint64_t)>& on_progress);
// Writes a small file. UNAVAILABLE: it cannot be written.
absl::Status WriteText(const std::filesystem::path& path, const std::string& text);
absl::Status CannotWrite(const std::filesystem::path& path);

}  // namespace tandem

#endif  // TANDEM_BENCH_INFLATE_INFLATED_TENSOR_H_
