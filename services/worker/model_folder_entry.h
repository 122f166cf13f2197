// Finds a model by its name in a folder of models.
#ifndef TANDEM_SERVICES_WORKER_MODEL_FOLDER_ENTRY_H_
#define TANDEM_SERVICES_WORKER_MODEL_FOLDER_ENTRY_H_

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace tandem {

// Returns the folder of the model `name`, which is a folder directly in `folder`. INVALID_ARGUMENT:
// the name is no name of a folder, such as one with a slash. FAILED_PRECONDITION: there is no such
// folder, and the message names the models that are there. Neither message has a path, because
// people who may not see the worker's disk read them.
absl::StatusOr<std::filesystem::path> ModelInFolder(const std::filesystem::path& folder,
                                                    const std::string& name);

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_MODEL_FOLDER_ENTRY_H_
