// JSON from untrusted files. Its size, depth and number of values are bounded, and no key may occur
// twice.
#ifndef TANDEM_COMMON_MODEL_CHECKPOINT_JSON_FILE_H_
#define TANDEM_COMMON_MODEL_CHECKPOINT_JSON_FILE_H_

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace tandem {

struct JsonLimits {
  size_t max_bytes = 1 << 20;
  size_t max_depth = 16;
  size_t max_values = 1 << 16;
};

// Parses JSON. Error messages begin with `where` and name the key at which the fault is.
absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, const std::string& where,
                                         const JsonLimits& limits);

// Reads and parses a file. Error messages begin with the file's path.
absl::StatusOr<nlohmann::json> ReadJsonFile(const std::filesystem::path& path,
                                            const JsonLimits& limits);

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CHECKPOINT_JSON_FILE_H_
