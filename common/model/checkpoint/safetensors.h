// One mapped .safetensors file: the names, types and shapes of its tensors, and the addresses of
// their bytes. The format has 8 bytes of header length, a JSON header, and the tensors without gaps
// (https://huggingface.co/docs/safetensors).
#ifndef TANDEM_COMMON_MODEL_CHECKPOINT_SAFETENSORS_H_
#define TANDEM_COMMON_MODEL_CHECKPOINT_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/checkpoint/mapped_file.h"

namespace tandem {

struct Tensor {
  std::string dtype;  // as the format names it: "BF16", "F32", "I64", …
  std::vector<uint64_t> shape;
  const void* data = nullptr;  // address in the mapping: row-major, little-endian, not aligned
  size_t bytes = 0;
};

class Safetensors {
 public:
  // Size of the longest header. It has room for about 25,000 tensors, and parsing a hostile header
  // takes less than 64 MiB.
  static constexpr size_t kMaxHeaderBytes = 4 << 20;

  // Opens a file and checks every offset and size. Errors name the file and the tensor.
  static absl::StatusOr<std::unique_ptr<Safetensors>> Open(const std::filesystem::path& path);

  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  const MappedFile& file() const { return *file_; }

 private:
  explicit Safetensors(std::unique_ptr<MappedFile> file) : file_(std::move(file)) {}
  absl::Status ReadHeader();

  std::unique_ptr<MappedFile> file_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CHECKPOINT_SAFETENSORS_H_
