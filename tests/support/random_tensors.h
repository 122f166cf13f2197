// Files of weights with random values, for the folders that tests write.
#ifndef TANDEM_TESTS_SUPPORT_RANDOM_TENSORS_H_
#define TANDEM_TESTS_SUPPORT_RANDOM_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "kernels/dtype.h"

namespace tandem::testing {

struct RandomTensor {
  std::string name;
  std::vector<size_t> shape;
  double mean = 0;
  double deviation = 1;
  std::vector<int64_t> ids = {};  // if not empty: the values, of type I64

  size_t num_values() const {
    size_t product = 1;
    for (size_t size : shape) product *= size;
    return product;
  }
};

// Writes a safetensors file. A tensor's values depend on the seed and on its name. Throws
// std::runtime_error if the file cannot be written.
void WriteRandomTensors(const std::filesystem::path& path, std::span<const RandomTensor> tensors,
                        DType dtype, uint64_t seed);

// Both throw std::runtime_error.
std::ofstream CreateFile(const std::filesystem::path& path);
void CloseFile(std::ofstream& file, const std::filesystem::path& path);

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_RANDOM_TENSORS_H_
