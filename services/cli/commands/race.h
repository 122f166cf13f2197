// A race of two recorded streams, side by side on a terminal: plain on the left, drafted on the
// right.
#ifndef TANDEM_SERVICES_CLI_COMMANDS_RACE_H_
#define TANDEM_SERVICES_CLI_COMMANDS_RACE_H_

#include <string>
#include <vector>

#include "services/cli/terminal/palette.h"
#include "tandem/v1/generate.pb.h"

namespace tandem::cli {

// A part of a stream's text.
struct RaceStep {
  double seconds = 0;  // when it arrived, since the request was sent
  std::string text;    // safe for a terminal; may have line breaks
  v1::TokenSource source = v1::TOKEN_SOURCE_PLAIN;
  int num_tokens = 0;
};

// A stream that was recorded while nothing else ran.
struct RaceLane {
  std::string title;
  std::vector<RaceStep> steps;  // in the order of their times

  double seconds() const { return steps.empty() ? 0 : steps.back().seconds; }
};

// Draws two lanes as they were `at` seconds after both requests were sent. A lane shows the end of
// its text, if the text is longer than the lane is high.
class Race {
 public:
  // `width` columns and `height` lines of a terminal are used; at least 40 and 6.
  Race(RaceLane left, RaceLane right, int width, int height, const Palette& palette);

  // Returns `height` lines, each with its newline. No line is wider than `width` columns.
  std::string Frame(double at) const;
  // Returns the time after which no frame changes any more.
  double seconds() const;

 private:
  std::vector<std::string> Lines(const RaceLane& lane, double at) const;
  std::string Status(const RaceLane& lane, double at) const;

  RaceLane left_;
  RaceLane right_;
  int lane_width_;
  int lane_height_;
  Palette palette_;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_COMMANDS_RACE_H_
