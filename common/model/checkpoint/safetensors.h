// One .safetensors file, mapped: names, types and shapes of tensors, and where their bytes are.
// Format: https://huggingface.co/docs/safetensors (8 bytes of header length, a JSON header, the
// tensors without gaps).
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
  const void* data = nullptr;  // row-major, little-endian, not aligned; in the mapping
  size_t bytes = 0;
};

class Safetensors {
 public:
  // Longest header: room for some 25,000 tensors, and parsing a hostile one stays under 64 MiB.
  static constexpr size_t kMaxHeaderBytes = 4 << 20;

  // Every offset and size is checked before this returns. Errors name the file and the tensor.
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
