// The tensors of a Hugging Face folder. They come from model.safetensors, or from the shards that
// model.safetensors.index.json names.
#ifndef TANDEM_COMMON_MODEL_CHECKPOINT_CHECKPOINT_H_
#define TANDEM_COMMON_MODEL_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/checkpoint/safetensors.h"

namespace tandem {

class Checkpoint {
 public:
  // Opens the files of a folder. If the folder has both model.safetensors and an index, the index
  // is ignored. Errors name the file and the field.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::filesystem::path& folder);
  // Opens one file.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> OpenFile(const std::filesystem::path& file);

  bool Has(const std::string& name) const { return tensors_.contains(name); }
  // Returns the names of all tensors, in ascending order.
  std::vector<std::string> names() const;
  // Returns a tensor, which is valid until the checkpoint is destroyed. NOT_FOUND names the file
  // that should have the tensor.
  absl::StatusOr<const Tensor*> Get(const std::string& name) const;
  // Returns the file that has the tensor, or that should have it. Messages name this file.
  std::string FileOf(const std::string& name) const;

  uint64_t mapped_bytes() const;
  void WillNeed() const;
  // Returns an error if a file has become shorter since it was mapped.
  absl::Status CheckWhole() const;

 private:
  struct Place {
    const Tensor* tensor = nullptr;
    const Safetensors* file = nullptr;
  };

  Checkpoint() = default;
  absl::Status AddShard(const std::filesystem::path& path);
  absl::Status AddIndex(const std::filesystem::path& path);

  std::string listing_;  // the file that lists the tensors
  std::vector<std::unique_ptr<Safetensors>> files_;
  std::map<std::string, Place> tensors_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CHECKPOINT_CHECKPOINT_H_
