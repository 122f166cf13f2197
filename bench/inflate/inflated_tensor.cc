#include "bench/inflate/inflated_tensor.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

float ToFloat(const void* data, DType dtype, size_t index) {
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, static_cast<const std::byte*>(data) + index * sizeof(value), sizeof(value));
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, static_cast<const std::byte*>(data) + index * sizeof(bits), sizeof(bits));
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Rounds to the nearest number, and ties to even.
uint16_t ToBF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// Uniform random numbers for added weights, equal in every run: xorshift64* (Vigna 2016).
class Filler {
 public:
  float Next(double deviation) {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    const auto bits = static_cast<int32_t>((state_ * 0x2545F4914F6CDD1DULL) >> 40);  // 24 bits
    return static_cast<float>((bits - (1 << 23)) * 0x1p-23 * 1.7320508 * deviation);
  }

 private:
  uint64_t state_ = 0x9E3779B97F4A7C15ULL;
};

void MakeRow(const InflatedTensor& tensor, size_t row, Filler& filler, std::vector<float>& values) {
  const int64_t source_row = tensor.source != nullptr ? tensor.row_of[row] : kAdded;
  for (size_t col = 0; col < tensor.cols; ++col) {
    const int64_t source_col = tensor.col_of[col];
    if (source_row >= 0 && source_col >= 0) {
      const size_t index =
          static_cast<size_t>(source_row) * tensor.source_cols + static_cast<size_t>(source_col);
      values[col] = static_cast<float>(
          tensor.scale * static_cast<double>(ToFloat(tensor.source, tensor.source_dtype, index)));
    } else {
      const bool is_zero = tensor.fill_deviation == 0 || tensor.row_of[row] == kZero;
      values[col] = is_zero ? 0.0f : filler.Next(tensor.fill_deviation);
    }
  }
  const auto& mark = source_row >= 0 ? tensor.mark : tensor.added_mark;
  if (mark.has_value()) values[mark->first] = mark->second;
}

uint64_t BytesOf(const InflatedTensor& tensor, DType dtype) {
  return tensor.ids.size() * sizeof(int64_t) + tensor.mask.size() +
         tensor.rows * tensor.cols * SizeOf(dtype);
}

const char* TypeOf(const InflatedTensor& tensor, DType dtype) {
  if (!tensor.ids.empty()) return "I64";
  if (!tensor.mask.empty()) return "BOOL";
  return dtype == DType::kF32 ? "F32" : "BF16";
}

}  // namespace

std::vector<int64_t> FirstPlaces(size_t count, size_t size) {
  std::vector<int64_t> places(size, kAdded);
  std::iota(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(count), 0);
  return places;
}

absl::Status CannotWrite(const std::filesystem::path& path) {
  return Unavailable(absl::StrCat("cannot write ", path.string()));
}

absl::Status WriteTensors(const std::filesystem::path& path,
                          const std::vector<InflatedTensor>& tensors, DType dtype,
                          const std::function<void(uint64_t, uint64_t)>& on_progress) {
  Json header;
  header["__metadata__"] = {{"format", "pt"}};
  uint64_t all = 0;
  for (const InflatedTensor& tensor : tensors) {
    const uint64_t end = all + BytesOf(tensor, dtype);
    header[tensor.name] = {
        {"dtype", TypeOf(tensor, dtype)}, {"shape", tensor.shape}, {"data_offsets", {all, end}}};
    all = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::ofstream file(path, std::ios::binary);
  const uint64_t size = text.size();
  static_assert(std::endian::native == std::endian::little);
  file.write(reinterpret_cast<const char*>(&size), sizeof(size));
  file << text;

  Filler filler;
  std::vector<float> values;
  std::vector<uint16_t> halves;
  uint64_t done = 0;
  for (const InflatedTensor& tensor : tensors) {
    file.write(reinterpret_cast<const char*>(tensor.ids.data()),
               static_cast<std::streamsize>(tensor.ids.size() * sizeof(int64_t)));
    file.write(reinterpret_cast<const char*>(tensor.mask.data()),
               static_cast<std::streamsize>(tensor.mask.size()));
    done += tensor.ids.size() * sizeof(int64_t) + tensor.mask.size();
    values.resize(tensor.cols);
    halves.resize(tensor.cols);
    for (size_t row = 0; row < tensor.rows; ++row) {
      MakeRow(tensor, row, filler, values);
      if (dtype == DType::kF32) {
        file.write(reinterpret_cast<const char*>(values.data()),
                   static_cast<std::streamsize>(values.size() * sizeof(float)));
      } else {
        std::transform(values.begin(), values.end(), halves.begin(), ToBF16);
        file.write(reinterpret_cast<const char*>(halves.data()),
                   static_cast<std::streamsize>(halves.size() * sizeof(uint16_t)));
      }
      done += tensor.cols * SizeOf(dtype);
    }
    if (!file) return CannotWrite(path);
    if (on_progress) on_progress(done, all);
  }
  file.close();
  return file ? absl::OkStatus() : CannotWrite(path);
}

absl::Status WriteText(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file ? absl::OkStatus() : CannotWrite(path);
}

}  // namespace tandem
