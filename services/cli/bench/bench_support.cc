#include "services/cli/bench/bench_support.h"

#include <algorithm>
#include <fstream>
#include <thread>

#include "common/status.h"
#include "services/cli/terminal/palette.h"
#include "services/cli/terminal/utf8.h"

namespace tandem::cli {

namespace {

const std::vector<std::string>& BuiltInPrompts() {
  static const std::vector<std::string> kPrompts = {
      "Once upon a time there was a king who had three daughters, and the youngest",
      "There was once a poor woodcutter who lived with his wife at the edge of a great forest.",
      "A fox and a wolf were walking together along the road when they saw",
      "In the middle of the night the old woman heard a knock at the door, and when she opened",
      "The prince mounted his horse and rode for three days until he came to a castle",
      "Long ago, when the animals could still speak, a little bird said to the lion,"};
  return kPrompts;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadPrompts(const std::string& path) {
  if (path.empty()) return BuiltInPrompts();
  std::ifstream file(path);
  if (!file) return InvalidArgument("--prompts: cannot read " + path);
  std::vector<std::string> prompts;
  int line_number = 0;
  for (std::string line; std::getline(file, line);) {
    ++line_number;
    if (line.empty()) continue;
    if (ValidUtf8Prefix(line) != line.size()) {
      return InvalidArgument("--prompts: line " + std::to_string(line_number) + " of " + path +
                             " is not valid UTF-8");
    }
    prompts.push_back(line);
  }
  if (prompts.empty()) return InvalidArgument("--prompts: " + path + " holds no prompt");
  return prompts;
}

std::string Hardware() {
  std::ifstream file("/proc/cpuinfo");
  std::string model = "unknown CPU";
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) model = line.substr(colon + 2);
    break;
  }
  return model + ", " + std::to_string(std::thread::hardware_concurrency()) + " hardware threads";
}

Progress::~Progress() {
  if (console_.err_is_terminal) console_.err << "\r\x1b[K" << std::flush;
}

void Progress::Step(const std::string& what) {
  ++done_;
  what_ = what;
  Show(done_);
}

void Progress::Within(double fraction) { Show(done_ - 1 + fraction); }

void Progress::Show(double done) {
  const double fraction = std::clamp(done / total_, 0.0, 1.0);
  const std::string count = std::to_string(done_) + "/" + std::to_string(total_);
  if (console_.err_is_terminal) {
    console_.err << "\r\x1b[K" << Palette(false).Bar(fraction, 30) << " " << count << "  " << what_
                 << std::flush;
    return;
  }
  const int tenths = static_cast<int>(fraction * 10);
  if (tenths <= tenths_) return;
  tenths_ = tenths;
  console_.err << "bench: " << 10 * tenths << " %, run " << count << ": " << what_ << "\n"
               << std::flush;
}

}  // namespace tandem::cli
