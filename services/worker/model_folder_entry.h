// Finds a model, or heads, by the name of a folder in a folder that the operator allows.
#ifndef TANDEM_SERVICES_WORKER_MODEL_FOLDER_ENTRY_H_
#define TANDEM_SERVICES_WORKER_MODEL_FOLDER_ENTRY_H_

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

struct ModelFolder {
  std::filesystem::path path;
  const char* flag;      // that names the folder: "--draft-folder"
  const char* contents;  // what it holds: "model"
};

// Returns the name of a folder, without its path.
std::string NameOfFolder(const std::filesystem::path& path);

// Returns the names of the folders that hold a config.json and are not hidden, in their order.
std::vector<std::string> ModelsIn(const std::filesystem::path& folder);

// Returns the folder `name` of a folder. INVALID_ARGUMENT: the name is no name of a folder, such as
// one with a slash. FAILED_PRECONDITION: there is no such folder, and the message names those that
// are there. Neither message has a path, because people who may not see the worker's disk read
// them.
absl::StatusOr<std::filesystem::path> FindInFolder(const ModelFolder& folder,
                                                   const std::string& name);

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_MODEL_FOLDER_ENTRY_H_
