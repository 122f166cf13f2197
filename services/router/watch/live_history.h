// The data of the live page: the last ten minutes of the router's figures, and the last events.
#ifndef TANDEM_SERVICES_ROUTER_WATCH_LIVE_HISTORY_H_
#define TANDEM_SERVICES_ROUTER_WATCH_LIVE_HISTORY_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "services/router/drafting/drafter_gain.h"
#include "services/router/drafting/drafter_set.h"
#include "services/router/engine/counts.h"
#include "services/router/engine/engine_command.h"
#include "services/router/watch/latency_window.h"

namespace tandem {

// What one drafter drafted since the start.
struct DrafterCounts {
  uint64_t drafted = 0;
  uint64_t accepted = 0;
  uint64_t tested = 0;
  GainSums gain = {};
};

// Heads that verifiers have.
struct LiveHeads {
  std::string name;     // that of their folder
  std::string drafter;  // what they are: "medusa"
  int pods = 0;         // pods that have them
};

// Counts since the start, and the router's state, at one moment.
struct LiveSample {
  double time = 0;  // Unix time, seconds

  uint64_t drafts = 0;
  uint64_t drafted = 0;
  uint64_t accepted = 0;
  uint64_t tested = 0;
  std::array<uint64_t, 4> emitted = {};  // accepted, recovered, bonus, plain
  uint64_t rounds = 0;
  std::array<double, 4> stage_seconds = {};  // draft, transfer, verify, commit
  std::vector<uint64_t> accepted_at;         // by position
  std::vector<uint64_t> tested_at;
  // By drafter, and by the name of the draft model, which other drafters lack.
  std::map<std::pair<Drafter, std::string>, DrafterCounts> drafters;

  std::array<LatencyQuantiles, kNumLatencies> latencies = {};

  Counts counts;
  Gauges gauges;
  double draft_length = 0;
  double gain = 1;
  double baseline_seconds = 0;
  int pods = 0;        // pods that the router knows
  int pods_ready = 0;  // pods whose verifiers serve
  bool verifier_attached = false;
  bool drafter_attached = false;  // a draft model at least
  bool has_drafter = false;
  std::string draft_model;
  std::string drafter_problem;  // why a draft model is not attached; empty: no reason is known
  std::string transport;
  std::vector<LiveHeads> heads;
};

// The router's thread writes, and the admin server's thread reads.
class LiveHistory {
 public:
  static constexpr double kSampleSeconds = 1;
  static constexpr size_t kMaxSamples = 600;
  static constexpr size_t kMaxEvents = 50;

  // `started_at` is Unix time.
  LiveHistory(std::string version, std::string model, double started_at);

  // Called about once in kSampleSeconds, and when a worker comes or goes.
  void Add(LiveSample sample);
  // Adds a line of the log for viewers of the page. The text has no prompt and no output.
  void AddEvent(double time, LogLine::Level level, const std::string& text);

  // Returns JSON with the samples and events that are newer than `since` (Unix time). The page's
  // script documents the fields.
  std::string Json(double since) const;

 private:
  struct Event {
    double time;
    LogLine::Level level;
    std::string text;
  };

  const std::string version_;
  const std::string model_;
  const double started_at_;
  // Held only while pointers and events are copied, because streams wait for the writer.
  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<const LiveSample>> samples_;
  std::deque<Event> events_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_WATCH_LIVE_HISTORY_H_
