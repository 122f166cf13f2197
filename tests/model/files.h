// Writes files for the tests of the loaders.
#ifndef TANDEM_TESTS_MODEL_FILES_H_
#define TANDEM_TESTS_MODEL_FILES_H_

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tandem::testing {

inline void WriteFile(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path.string());
}

inline std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Returns the bytes of a .safetensors file. `header_bytes` is the length of the header that the
// file claims.
inline std::string SafetensorsBytes(const std::string& header, size_t data_bytes,
                                    uint64_t header_bytes) {
  std::string bytes(sizeof(header_bytes), '\0');
  std::memcpy(bytes.data(), &header_bytes, sizeof(header_bytes));
  return bytes + header + std::string(data_bytes, '\1');
}

inline std::string SafetensorsBytes(const std::string& header, size_t data_bytes) {
  return SafetensorsBytes(header, data_bytes, header.size());
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_MODEL_FILES_H_
