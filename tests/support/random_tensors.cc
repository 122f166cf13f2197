#include "tests/support/random_tensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace tandem::testing {
namespace {

using Json = nlohmann::ordered_json;

// Values come from a table of evenly spaced quantiles of the normal distribution. One table look-up
// for 12 random bits keeps up with the disk, so a 1B-shaped model takes seconds instead of minutes.
constexpr size_t kTableBits = 12;
constexpr size_t kTableSize = size_t{1} << kTableBits;
constexpr size_t kValuesPerBlock = size_t{1} << 18;

// Returns the inverse of the normal distribution function, by bisection. The table is made only
// once, so exactness is cheap.
double NormalQuantile(double probability) {
  double low = -9, high = 9;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < probability ? low : high) = middle;
  }
  return (low + high) / 2;
}

std::array<double, kTableSize> MakeNormalTable() {
  std::array<double, kTableSize> table;
  for (size_t i = 0; i < kTableSize; ++i) {
    table[i] = NormalQuantile((static_cast<double>(i) + 0.5) / kTableSize);
  }
  return table;
}

uint16_t ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// Rounds to nearest, with ties to even. PRECOND: |value| < 65504.
uint16_t ToF16(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(static_cast<double>(value));
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  exponent = std::max(exponent - 1, -14);  // subnormal below 2^-14
  const auto mantissa = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  const uint32_t biased = static_cast<uint32_t>(exponent + 15);
  // A mantissa without its leading bit is a subnormal (biased exponent 0). A mantissa that rounded
  // up to 2048 carries into the exponent by itself.
  return static_cast<uint16_t>(sign | (mantissa + ((biased - 1) << 10)));
}

template <typename T>
std::array<T, kTableSize> Scaled(const std::array<double, kTableSize>& normal,
                                 const RandomTensor& tensor, T (*convert)(float)) {
  std::array<T, kTableSize> table;
  for (size_t i = 0; i < kTableSize; ++i) {
    table[i] = convert(static_cast<float>(tensor.mean + tensor.deviation * normal[i]));
  }
  return table;
}

// The high bits of xorshift64* (Vigna 2016) are good enough here.
uint64_t SeedOf(uint64_t seed, const std::string& name) {
  uint64_t hash = 0xCBF29CE484222325ULL ^ (seed * 0x9E3779B97F4A7C15ULL);
  for (char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3ULL;
  return hash | 1;
}

template <typename T>
void WriteValues(std::ofstream& file, size_t num_values, uint64_t state,
                 const std::array<T, kTableSize>& table, std::vector<T>& block) {
  block.resize(kValuesPerBlock);
  while (num_values > 0) {
    const size_t count = std::min(num_values, kValuesPerBlock);
    for (size_t i = 0; i < count; i += 4) {  // kValuesPerBlock is a multiple of 4
      state ^= state >> 12;
      state ^= state << 25;
      state ^= state >> 27;
      uint64_t random = (state * 0x2545F4914F6CDD1DULL) >> (64 - 4 * kTableBits);
      for (size_t j = 0; j < 4; ++j, random >>= kTableBits) {
        block[i + j] = table[random & (kTableSize - 1)];
      }
    }
    file.write(reinterpret_cast<const char*>(block.data()),
               static_cast<std::streamsize>(count * sizeof(T)));
    num_values -= count;
  }
}

size_t BytesOf(const RandomTensor& tensor, DType dtype) {
  return tensor.num_values() * (tensor.ids.empty() ? SizeOf(dtype) : sizeof(int64_t));
}

}  // namespace

std::ofstream CreateFile(const std::filesystem::path& path) {
  std::ofstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot create " + path.string());
  return file;
}

void CloseFile(std::ofstream& file, const std::filesystem::path& path) {
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path.string());
}

void WriteRandomTensors(const std::filesystem::path& path, std::span<const RandomTensor> tensors,
                        DType dtype, uint64_t seed) {
  Json header;
  header["__metadata__"] = {{"format", "pt"}};
  size_t offset = 0;
  for (const RandomTensor& tensor : tensors) {
    const size_t end = offset + BytesOf(tensor, dtype);
    const std::string type = tensor.ids.empty() ? Name(dtype) : "I64";
    header[tensor.name] = {
        {"dtype", type}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');

  std::ofstream file = CreateFile(path);
  const uint64_t size = text.size();
  std::array<char, 8> little_endian;
  for (size_t i = 0; i < 8; ++i) little_endian[i] = static_cast<char>(size >> (8 * i));
  file.write(little_endian.data(), little_endian.size());
  file << text;

  const auto normal = MakeNormalTable();
  std::vector<float> block32;
  std::vector<uint16_t> block16;
  for (const RandomTensor& tensor : tensors) {
    const uint64_t state = SeedOf(seed, tensor.name);
    if (!tensor.ids.empty()) {
      file.write(reinterpret_cast<const char*>(tensor.ids.data()),
                 static_cast<std::streamsize>(BytesOf(tensor, dtype)));
      continue;
    }
    switch (dtype) {
      case DType::kF32:
        WriteValues<float>(file, tensor.num_values(), state,
                           Scaled<float>(normal, tensor, [](float value) { return value; }),
                           block32);
        break;
      case DType::kBF16:
        WriteValues<uint16_t>(file, tensor.num_values(), state,
                              Scaled<uint16_t>(normal, tensor, ToBF16), block16);
        break;
      case DType::kF16:
        WriteValues<uint16_t>(file, tensor.num_values(), state,
                              Scaled<uint16_t>(normal, tensor, ToF16), block16);
        break;
    }
  }
  CloseFile(file, path);
}

}  // namespace tandem::testing
