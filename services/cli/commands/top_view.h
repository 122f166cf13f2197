// The output of `tandem top`, made from the data of the live page (LiveHistory::Json of the
// router).
#ifndef TANDEM_SERVICES_CLI_COMMANDS_TOP_VIEW_H_
#define TANDEM_SERVICES_CLI_COMMANDS_TOP_VIEW_H_

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/cli/terminal/palette.h"

namespace tandem::cli {

class TopView {
 public:
  // Takes an answer to /live.json?since=since(). INVALID_ARGUMENT: the text is no such answer.
  absl::Status Take(const std::string& json);
  // Unix time of the newest sample; 0: none.
  double since() const { return samples_.empty() ? 0 : samples_.back().time; }

  // Returns about two dozen lines of `width` columns.
  std::string Render(int width, const Palette& palette) const;

 private:
  struct Sample {
    double time = 0;
    double drafted = 0;
    double accepted = 0;
    double tested = 0;
    std::array<double, 4> emitted = {};  // accepted, recovered, bonus, plain
    double rounds = 0;
    std::array<double, 4> stages = {};  // draft, transfer, verify, commit; seconds
    double gain = 1;

    double tokens() const { return emitted[0] + emitted[1] + emitted[2] + emitted[3]; }
  };
  struct Pages {
    double total = 0;
    double used = 0;
  };
  // Since the start.
  struct TotalCounts {
    double finished = 0, preemptions = 0;
    double verifier_losses = 0, drafter_losses = 0, ring_errors = 0;
  };
  struct State {
    int slots = 0, running = 0, waiting = 0;
    bool verifier = false, drafter = false, has_drafter = false;
    std::string draft_model, drafter_problem, transport;
    std::vector<std::string> heads;  // their kinds and names
    int pods = 0, pods_ready = 0;
    Pages kv, draft_kv;
    TotalCounts totals;
  };
  struct DrafterShare {
    std::string name;
    double drafted = 0, accepted = 0;  // tokens
    std::string gain;                  // with its interval
  };
  struct Event {
    double time = 0;
    std::string level, text;
  };

  // Returns the sums over the last `seconds` before sample `i`. All are zero if there are not
  // enough samples.
  Sample Over(size_t i, double seconds) const;
  std::string Header(const Palette& palette) const;
  std::string Workers(const Palette& palette) const;
  std::string Numbers(const Palette& palette) const;
  std::string Curves(int width) const;
  std::string Sources(const Palette& palette) const;
  std::string Positions(const Palette& palette) const;
  std::string Drafters() const;
  std::string Rounds() const;
  std::string Cache(const Palette& palette) const;
  std::string Totals() const;
  std::string Events(int width, const Palette& palette) const;

  std::string version_;
  std::string model_;
  double started_ = 0;
  std::deque<Sample> samples_;
  std::deque<Event> events_;
  State state_;
  std::vector<double> accepted_at_, tested_at_;  // for each position, over the last minute
  std::vector<DrafterShare> drafters_;           // those that drafted in the last minute
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_COMMANDS_TOP_VIEW_H_
