#include "services/cli/batch/batch_progress.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/cli/terminal/palette.h"

namespace tandem::cli {

namespace {

constexpr double kTerminalPeriod = 0.2;
constexpr double kLinePeriod = 10;

// Returns "50 s", "3 min" or "2.5 h".
std::string LongTime(double seconds) {
  if (seconds < 100) return absl::StrFormat("%.0f s", seconds);
  if (seconds < 100 * 60) return absl::StrFormat("%.0f min", seconds / 60);
  return absl::StrFormat("%.1f h", seconds / 3600);
}

}  // namespace

std::string BatchProgressText(const BatchCounts& counts, double seconds) {
  const int64_t done = counts.answered + counts.failed;
  std::string text = absl::StrCat(counts.earlier + done, " of ", counts.lines, " lines");
  if (counts.failed > 0) absl::StrAppend(&text, ", ", counts.failed, " failed");
  if (seconds > 0 && counts.tokens > 0) {
    absl::StrAppendFormat(&text, ", %.0f tokens/s", static_cast<double>(counts.tokens) / seconds);
  }
  const int64_t left = counts.lines - counts.earlier - done;
  if (left > 0 && counts.answered > 0) {
    absl::StrAppend(
        &text, ", ",
        LongTime(seconds * static_cast<double>(left) / static_cast<double>(counts.answered)),
        " left");
  }
  return text;
}

std::string BatchFailureAdvice(const BatchCounts& counts) {
  if (counts.failed == 0) return "";
  if (counts.refused == 0) return "The same command sends the lines that failed again.";
  if (counts.refused == counts.failed) {
    return "The lines that failed must be corrected first. The same command then sends them.";
  }
  return absl::StrCat("The same command sends the lines that failed again, but ", counts.refused,
                      " of them must be corrected first.");
}

void BatchProgress::Show(const BatchCounts& counts) {
  const double now = seconds();
  if (now - shown_at_ < (console_.err_is_terminal ? kTerminalPeriod : kLinePeriod)) return;
  shown_at_ = now;
  Clear();
  is_shown_ = console_.err_is_terminal;
  console_.err << BatchProgressText(counts, now) << (is_shown_ ? "" : "\n") << std::flush;
}

void BatchProgress::Say(const std::string& text) {
  Clear();
  console_.err << VisibleText(text) << std::endl;
}

void BatchProgress::End(const BatchCounts& counts) { Say(BatchProgressText(counts, seconds())); }

double BatchProgress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

void BatchProgress::Clear() {
  if (is_shown_) console_.err << "\r\x1b[K";
  is_shown_ = false;
}

}  // namespace tandem::cli
