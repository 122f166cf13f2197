// `tandem doctor`
#ifndef TANDEM_SERVICES_CLI_DOCTOR_DOCTOR_COMMAND_H_
#define TANDEM_SERVICES_CLI_DOCTOR_DOCTOR_COMMAND_H_

#include <string>
#include <vector>

#include "services/cli/doctor/machine_report.h"
#include "services/cli/doctor/pair_advice.h"
#include "services/cli/terminal/console.h"
#include "services/cli/terminal/palette.h"
#include "services/cli/terminal/parsed.h"

namespace tandem::cli {

struct DoctorOptions {
  std::string target = {};  // a pair that is judged too; empty: only the known ones
  std::string draft = {};
  bool json = false;
  ColorMode color = ColorMode::kAuto;
};

// Says what this machine has, which pair would pay on it, and what to set. Takes about a second,
// for which it reads memory at full speed. Returns the exit code.
int Doctor(const DoctorOptions& options, Console& console);

// Returns sentences about what to set, the most important ones first. Empty: nothing.
std::vector<std::string> Advice(const MachineReport& machine, const std::vector<PairAdvice>& pairs);

// `arguments` are the arguments after the command's name.
Parsed<DoctorOptions> ParseDoctor(std::vector<std::string> arguments);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_DOCTOR_DOCTOR_COMMAND_H_
