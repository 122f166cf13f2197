// Names of folders that operators give to a running server.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_ROSTER_FOLDER_NAME_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_ROSTER_FOLDER_NAME_H_

#include <string>

#include "absl/status/status.h"

namespace tandem {

// INVALID_ARGUMENT: `name` could lead out of its folder, or would spoil a log line. The message
// names the field of the request and the flag of the folder.
absl::Status CheckFolderName(const char* field, const std::string& name, const char* folder_flag);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_ROSTER_FOLDER_NAME_H_
