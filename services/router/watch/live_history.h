// What the live page shows: the last ten minutes of the router's figures, and what happened.
#ifndef TANDEM_SERVICES_ROUTER_WATCH_LIVE_HISTORY_H_
#define TANDEM_SERVICES_ROUTER_WATCH_LIVE_HISTORY_H_

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "services/router/engine/counts.h"
#include "services/router/engine/engine_command.h"

namespace tandem {

// Counts since the start, and states, at one moment.
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

  Counts counts;
  Gauges gauges;
  double draft_length = 0;
  double gain = 1;
  double baseline_seconds = 0;
  int pods = 0;        // that the router knows
  int pods_ready = 0;  // their verifiers serve
  bool verifier_attached = false;
  bool drafter_attached = false;
  bool has_drafter = false;
  std::string draft_model;
  std::string transport;
};

// Written by the router's thread, read by the admin server's.
class LiveHistory {
 public:
  static constexpr double kSampleSeconds = 1;
  static constexpr size_t kMaxSamples = 600;
  static constexpr size_t kMaxEvents = 50;

  // `started_at`: Unix time.
  LiveHistory(std::string version, std::string model, double started_at);

  // About once in kSampleSeconds.
  void Add(LiveSample sample);
  // A line of the log that people should see: no prompt, no output.
  void AddEvent(double time, LogLine::Level level, const std::string& text);

  // JSON of what is newer than `since` (Unix time); the page's script says how it is read.
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
  mutable std::mutex
      mutex_;  // held for as long as pointers are copied: streams wait for the writer
  std::deque<std::shared_ptr<const LiveSample>> samples_;
  std::deque<Event> events_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_WATCH_LIVE_HISTORY_H_
