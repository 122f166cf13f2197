#include "services/cli/commands/race.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tandem::cli {

namespace {

constexpr char kGap[] = " │ ";
constexpr int kGapWidth = 3;
constexpr int kHeadLines = 2;  // titles and progress

// Text that fills a column. Each character of UTF-8 takes one column. (Characters that take two
// make a line ragged, and do no other harm.)
class Column {
 public:
  Column(int width, const Palette& palette) : width_(width), palette_(palette) {}

  void Add(const std::string& text, v1::TokenSource source) {
    size_t begin = 0;
    while (begin < text.size()) {
      size_t end = begin + 1;
      while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
      AddCharacter(text.substr(begin, end - begin), source);
      begin = end;
    }
  }

  // Returns the last lines, each filled with blanks to the column's width.
  std::vector<std::string> Take(int height) {
    EndRun();
    std::vector<std::string> lines;
    for (const Line& line : lines_) {
      lines.push_back(line.text + std::string(static_cast<size_t>(width_ - line.width), ' '));
    }
    const auto room = static_cast<size_t>(height);
    if (lines.size() > room) lines.erase(lines.begin(), lines.end() - height);
    lines.resize(room, std::string(static_cast<size_t>(width_), ' '));
    return lines;
  }

 private:
  struct Line {
    std::string text;
    int width = 0;
  };

  void AddCharacter(const std::string& character, v1::TokenSource source) {
    if (source != source_) EndRun();
    source_ = source;
    if (character == "\n") return EndLine();
    if (lines_.back().width == width_) {
      EndLine();
      if (character == " ") return;
    }
    run_ += character == "\t" ? " " : character;
    ++lines_.back().width;
  }
  void EndLine() {
    EndRun();
    lines_.emplace_back();
  }
  // Characters of one source get one color code.
  void EndRun() {
    if (!run_.empty()) lines_.back().text += palette_.Source(source_, std::exchange(run_, {}));
  }

  const int width_;
  const Palette& palette_;
  std::vector<Line> lines_{1};
  std::string run_;
  v1::TokenSource source_ = v1::TOKEN_SOURCE_PLAIN;
};

std::string Filled(const std::string& text, int width) {
  if (static_cast<int>(text.size()) >= width) return text.substr(0, static_cast<size_t>(width));
  return text + std::string(static_cast<size_t>(width) - text.size(), ' ');
}

}  // namespace

Race::Race(RaceLane left, RaceLane right, int width, int height, const Palette& palette)
    : left_(std::move(left)),
      right_(std::move(right)),
      lane_width_((std::max(width, 40) - kGapWidth) / 2),
      lane_height_(std::max(height, 6) - kHeadLines),
      palette_(palette) {}

double Race::seconds() const { return std::max(left_.seconds(), right_.seconds()); }

std::vector<std::string> Race::Lines(const RaceLane& lane, double at) const {
  Column column(lane_width_, palette_);
  for (const RaceStep& step : lane.steps) {
    if (step.seconds > at) break;
    column.Add(step.text, step.source);
  }
  return column.Take(lane_height_);
}

std::string Race::Status(const RaceLane& lane, double at) const {
  int num_tokens = 0;
  for (const RaceStep& step : lane.steps) num_tokens += step.seconds <= at ? step.num_tokens : 0;
  const bool done = at >= lane.seconds();
  const double seconds = std::min(at, lane.seconds());
  const double rate = seconds > 0 ? num_tokens / seconds : 0;
  const std::string text =
      Filled(absl::StrFormat("%s%d tokens in %.0f ms, %.0f tokens/s", done ? "done: " : "",
                             num_tokens, 1e3 * seconds, rate),
             lane_width_);
  return done ? palette_.Good(text) : palette_.Dim(text);
}

std::string Race::Frame(double at) const {
  std::string frame = absl::StrCat(palette_.Bold(Filled(left_.title, lane_width_)), kGap,
                                   palette_.Bold(Filled(right_.title, lane_width_)), "\n",
                                   Status(left_, at), kGap, Status(right_, at), "\n");
  const std::vector<std::string> left = Lines(left_, at);
  const std::vector<std::string> right = Lines(right_, at);
  for (size_t i = 0; i < left.size(); ++i) absl::StrAppend(&frame, left[i], kGap, right[i], "\n");
  return frame;
}

}  // namespace tandem::cli
