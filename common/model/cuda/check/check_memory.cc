#include "common/model/cuda/check/check_memory.h"

#include <cmath>

namespace tandem {

absl::StatusOr<CheckMemory> CheckMemory::Create(size_t bytes, const DeviceStream* stream) {
  CheckMemory memory;
  TANDEM_ASSIGN_OR_RETURN(memory.arena_, DeviceArena::Create(bytes));
  memory.stream_ = stream;
  return memory;
}

// SplitMix64 (Steele et al. 2014).
uint64_t CheckNumbers::Next() {
  uint64_t z = state_ += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

std::vector<float> CheckNumbers::Uniform(size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(Next() >> 40) * 0x1p-23f - 1;
  return values;
}

std::vector<float> CheckNumbers::UniformBf16(size_t count) {
  std::vector<float> values = Uniform(count);
  for (float& value : values) {
    value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xFFFF0000);
  }
  return values;
}

std::vector<float> CheckNumbers::Coarse(size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(Next() >> 57) * 0x1p-6f - 1;
  return values;
}

std::vector<uint16_t> Bf16Parts(std::span<const float> values, int num_parts) {
  std::vector<uint16_t> parts(static_cast<size_t>(num_parts) * values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    float rest = values[i];
    for (size_t part = 0; part < static_cast<size_t>(num_parts); ++part) {
      const auto bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(rest) >> 16);
      parts[part * values.size() + i] = bits;
      rest -= WidenBf16(bits);
    }
  }
  return parts;
}

absl::Status CheckNear(const std::string& what, std::span<const float> got,
                       std::span<const float> want, size_t row_size, double absolute,
                       double relative) {
  for (size_t i = 0; i < want.size(); ++i) {
    const double most = absolute + relative * std::abs(double{want[i]});
    if (std::abs(double{got[i]} - double{want[i]}) <= most) continue;
    return FailedPrecondition(absl::StrCat(what, ": row ", i / row_size, ", value ", i % row_size,
                                           " is ", got[i], " and should be ", want[i]));
  }
  return absl::OkStatus();
}

}  // namespace tandem
