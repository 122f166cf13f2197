#include "services/cli/doctor/machine_report.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

namespace tandem::cli {

namespace fs = std::filesystem;

namespace {

// Returns what follows the colon of the first line that begins with each name.
std::map<std::string, std::string> ReadFields(const fs::path& path) {
  std::map<std::string, std::string> fields;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t name_end = line.find_last_not_of(" \t", colon == 0 ? 0 : colon - 1);
    const size_t value = line.find_first_not_of(" \t", colon + 1);
    if (name_end == std::string::npos || value == std::string::npos) continue;
    fields.emplace(line.substr(0, name_end + 1), line.substr(value));
  }
  return fields;
}

std::vector<std::string> Instructions(const std::string& flags) {
  std::set<std::string> have;
  std::istringstream words(flags);
  for (std::string word; words >> word;) have.insert(word);
  const std::vector<std::pair<const char*, const char*>> known = {{"avx2", "AVX2"},
                                                                  {"avx512f", "AVX-512"},
                                                                  {"avx512_vnni", "AVX-512 VNNI"},
                                                                  {"avx512_bf16", "BF16"},
                                                                  {"amx_bf16", "AMX-BF16"},
                                                                  {"asimd", "NEON"},
                                                                  {"bf16", "BF16 (Arm)"},
                                                                  {"sve", "SVE"}};
  std::vector<std::string> names;
  for (const auto& [flag, name] : known) {
    if (have.contains(flag)) names.emplace_back(name);
  }
  return names;
}

// Returns the bytes of a line such as "24587652 kB".
uint64_t KilobytesOf(const std::map<std::string, std::string>& fields, const std::string& name) {
  const auto found = fields.find(name);
  return found == fields.end() ? 0 : std::strtoull(found->second.c_str(), nullptr, 10) << 10;
}

// Returns the number in a file of one number, and `otherwise` if there is none ("max").
uint64_t NumberIn(const fs::path& path, uint64_t otherwise) {
  std::ifstream file(path);
  uint64_t number = 0;
  return file >> number ? number : otherwise;
}

std::vector<std::string> Gpus(const fs::path& root) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root / "proc/driver/nvidia/gpus", error)) {
    const auto fields = ReadFields(entry.path() / "information");
    const auto model = fields.find("Model");
    names.push_back(model == fields.end() ? "an NVIDIA GPU" : model->second);
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool HasMps(const fs::path& root) {
  const char* folder = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  std::error_code ignored;
  if (folder != nullptr && *folder != '\0')
    return fs::exists(fs::path(folder) / "control", ignored);
  return fs::exists(root / "tmp/nvidia-mps/control", ignored);
}

int NumCores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
}

uint64_t Limit(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return 0;
  return limit.rlim_cur == RLIM_INFINITY ? ~uint64_t{0} : limit.rlim_cur;
}

}  // namespace

MachineReport InspectMachine(const fs::path& root) {
  MachineReport report;
  const auto cpu = ReadFields(root / "proc/cpuinfo");
  for (const char* name : {"model name", "Model", "Hardware"}) {
    if (report.processor.empty() && cpu.contains(name)) report.processor = cpu.at(name);
  }
  for (const char* name : {"flags", "Features"}) {
    if (cpu.contains(name)) report.instructions = Instructions(cpu.at(name));
  }
  report.num_cores = NumCores();
  const auto memory = ReadFields(root / "proc/meminfo");
  const uint64_t group_limit = NumberIn(root / "sys/fs/cgroup/memory.max", ~uint64_t{0});
  const uint64_t group_used = NumberIn(root / "sys/fs/cgroup/memory.current", 0);
  report.memory_bytes = std::min(KilobytesOf(memory, "MemTotal"), group_limit);
  report.available_bytes = KilobytesOf(memory, "MemAvailable");
  if (group_limit != ~uint64_t{0}) {
    report.available_bytes =
        std::min(report.available_bytes, group_limit - std::min(group_used, group_limit));
  }
  report.gpus = Gpus(root);
  report.has_mps = HasMps(root);
  report.max_open_files = Limit(RLIMIT_NOFILE);
  report.max_locked_bytes = Limit(RLIMIT_MEMLOCK);
  return report;
}

}  // namespace tandem::cli
