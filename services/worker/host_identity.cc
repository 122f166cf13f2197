#include "services/worker/host_identity.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace tandem {

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

std::string PidNamespace() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
}

}  // namespace tandem
