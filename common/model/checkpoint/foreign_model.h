// Recognizes what is no model in Hugging Face layout, so that a refusal says what it is and what to
// do about it.
#ifndef TANDEM_COMMON_MODEL_CHECKPOINT_FOREIGN_MODEL_H_
#define TANDEM_COMMON_MODEL_CHECKPOINT_FOREIGN_MODEL_H_

#include <filesystem>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tandem {

// Looks at a folder without loading it: config.json and weights in safetensors files must be there.
// INVALID_ARGUMENT names the path, says what it is (the name of a repository on a hub, a GGUF file,
// a Git LFS pointer, a folder of another layout) and what to do. OK does not mean that the model
// can be loaded.
absl::Status CheckModelFolder(const std::filesystem::path& folder);

// Says what a file is that begins with `bytes`, and what to do: "is a Git LFS pointer …". Empty: it
// is none of the formats that are taken for weights by mistake.
std::string ExplainForeignFile(std::string_view bytes);

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CHECKPOINT_FOREIGN_MODEL_H_
