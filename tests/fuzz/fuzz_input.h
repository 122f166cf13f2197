// Reads the parts of a fuzz target's input from the front. An input that ends early gives zeros and
// empty texts.
#ifndef TANDEM_TESTS_FUZZ_FUZZ_INPUT_H_
#define TANDEM_TESTS_FUZZ_FUZZ_INPUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tandem::fuzz {

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }

  uint8_t Byte() {
    const std::string_view byte = Take(1);
    return byte.empty() ? 0 : static_cast<uint8_t>(byte[0]);
  }
  // Reads two bytes, little-endian.
  uint32_t Short() {
    const uint32_t low = Byte();
    return low | uint32_t{Byte()} << 8;
  }
  // Reads a length of two bytes, and then this number of bytes or the rest of the input.
  std::string_view Chunk() { return Take(Short()); }
  std::string_view Rest() { return std::exchange(rest_, {}); }

 private:
  std::string_view Take(size_t size) {
    const std::string_view taken = rest_.substr(0, std::min(size, rest_.size()));
    rest_.remove_prefix(taken.size());
    return taken;
  }

  std::string_view rest_;
};

// Writes the format that FuzzInput reads. Seeds are made with it.
class FuzzOutput {
 public:
  FuzzOutput& Byte(unsigned value) {
    bytes_ += static_cast<char>(value);
    return *this;
  }
  FuzzOutput& Short(size_t value) {
    return Byte(static_cast<unsigned>(value & 0xFF)).Byte(static_cast<unsigned>(value >> 8));
  }
  FuzzOutput& Chunk(std::string_view bytes) { return Short(bytes.size()).Rest(bytes); }
  FuzzOutput& Rest(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace tandem::fuzz

#endif  // TANDEM_TESTS_FUZZ_FUZZ_INPUT_H_
