#include "services/cli/bench/serve/process_usage.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <memory>
#include <sstream>

#include "services/cli/bench/share.h"

namespace tandem::cli {

namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

double OwnCpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
}

// See proc(5): pid (comm) state ppid … utime stime are the fields; utime and stime are the 14th and
// 15th. `comm` may hold any character.
void AddIfChild(const std::string& pid, double tick_seconds,
                std::map<std::string, double>& children) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string line;
  if (!std::getline(file, line)) return;  // the process has ended meanwhile
  const size_t open = line.find('(');
  const size_t close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return;
  std::istringstream fields(line.substr(close + 1));
  std::string state, skipped;
  pid_t parent = 0;
  fields >> state >> parent;
  if (parent != getpid()) return;
  for (int field = 5; field <= 13; ++field) fields >> skipped;
  double user = 0;
  double system = 0;
  if (fields >> user >> system) {
    children[line.substr(open + 1, close - open - 1)] = (user + system) * tick_seconds;
  }
}

// The first line has: cpu user nice system idle iowait irq softirq steal.
void ReadMachine(double tick_seconds, CpuSeconds* seconds) {
  std::ifstream file("/proc/stat");
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  file >> name >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
  seconds->machine = (user + nice + system + irq + softirq) * tick_seconds;
  seconds->stolen = steal * tick_seconds;
}

}  // namespace

CpuSeconds ReadCpuSeconds() {
  const double tick_seconds = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
  CpuSeconds seconds;
  seconds.own = OwnCpuSeconds();
  ReadMachine(tick_seconds, &seconds);
  const std::unique_ptr<DIR, int (*)(DIR*)> processes(opendir("/proc"), closedir);
  if (processes == nullptr) return seconds;
  while (const dirent* entry = readdir(processes.get())) {
    const std::string name = entry->d_name;
    if (std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); })) {
      AddIfChild(name, tick_seconds, seconds.children);
    }
  }
  return seconds;
}

double StolenShare(const CpuSeconds& before, const CpuSeconds& after) {
  const double stolen = after.stolen - before.stolen;
  return Share(stolen, stolen + after.machine - before.machine);
}

}  // namespace tandem::cli
