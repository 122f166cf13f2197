// What this machine has, as far as it matters for serving.
#ifndef TANDEM_SERVICES_CLI_DOCTOR_MACHINE_REPORT_H_
#define TANDEM_SERVICES_CLI_DOCTOR_MACHINE_REPORT_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tandem::cli {

struct MachineReport {
  std::string processor = {};  // "AMD EPYC 9B45"; empty: not known
  std::vector<std::string> instructions =
      {};                              // those that the kernels use, from "AVX2" to "AMX-BF16"
  int num_cores = 0;                   // logical CPUs that this process may run on
  uint64_t memory_bytes = 0;           // the machine's, or the control group's if that is less
  uint64_t available_bytes = 0;        // not used by other processes
  std::vector<std::string> gpus = {};  // names of NVIDIA GPUs that have a driver
  bool has_mps = false;                // NVIDIA's Multi-Process Service runs
  uint64_t max_open_files = 0;
  uint64_t max_locked_bytes = 0;  // 2^64 - 1: no limit
};

// Reads the system's files. `root` stands for / in tests. What cannot be read is left out.
MachineReport InspectMachine(const std::filesystem::path& root = "/");

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_DOCTOR_MACHINE_REPORT_H_
