#include "services/router/watch/live_history.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace tandem {
namespace {

constexpr double kPositionSeconds = 60;  // span of the acceptance by position

const char* LevelName(LogLine::Level level) {
  return level == LogLine::Level::kError     ? "error"
         : level == LogLine::Level::kWarning ? "warning"
                                             : "info";
}

// For each kind of latency [number of samples, p50, p95, p99] in milliseconds with three digits.
nlohmann::json LatenciesJson(const LiveSample& sample) {
  nlohmann::json json = nlohmann::json::array();
  const auto milliseconds = [](double seconds) { return std::round(1e6 * seconds) / 1e3; };
  for (const LatencyQuantiles& latency : sample.latencies) {
    json.push_back({latency.num_samples, milliseconds(latency.p50), milliseconds(latency.p95),
                    milliseconds(latency.p99)});
  }
  return json;
}

nlohmann::json ToJson(const LiveSample& sample) {
  return {{"t", sample.time},
          {"drafts", sample.drafts},
          {"drafted", sample.drafted},
          {"accepted", sample.accepted},
          {"tested", sample.tested},
          {"emitted", sample.emitted},
          {"rounds", sample.rounds},
          {"stages", sample.stage_seconds},
          {"running", sample.gauges.running},
          {"waiting", sample.gauges.queued},
          {"length", sample.draft_length},
          {"gain", sample.gain},
          {"latencies", LatenciesJson(sample)}};
}

// Returns the counts that came between two samples of one drafter.
nlohmann::json Difference(const std::vector<uint64_t>& after, const std::vector<uint64_t>& before) {
  nlohmann::json counts = nlohmann::json::array();
  for (size_t i = 0; i < after.size(); ++i) {
    counts.push_back(after[i] - (i < before.size() ? std::min(before[i], after[i]) : 0));
  }
  return counts;
}

// Null: there were too few drafts.
nlohmann::json GainJson(const GainSums& sums) {
  const std::optional<DrafterGain> gain = sums.gain();
  if (!gain.has_value()) return nullptr;
  return {{"ratio", gain->ratio}, {"error", gain->error}, {"drafts", sums.num_drafts()}};
}

// Returns what each drafter drafted between two samples, and what it gained. Drafters that drafted
// nothing are left out.
nlohmann::json DraftersJson(const LiveSample& after, const LiveSample& before) {
  nlohmann::json drafters = nlohmann::json::array();
  const auto num_models =
      std::count_if(after.drafters.begin(), after.drafters.end(),
                    [](const auto& entry) { return entry.first.first == Drafter::kModel; });
  for (const auto& [who, now] : after.drafters) {
    const auto found = before.drafters.find(who);
    const DrafterCounts then = found == before.drafters.end() ? DrafterCounts() : found->second;
    if (now.drafted <= then.drafted) continue;
    const bool is_named = who.first == Drafter::kModel && num_models > 1;
    drafters.push_back({{"name", is_named ? who.second : DrafterName(who.first)},
                        {"drafted", now.drafted - then.drafted},
                        {"accepted", now.accepted - then.accepted},
                        {"tested", now.tested - then.tested},
                        {"gain", GainJson(now.gain.Since(then.gain))}});
  }
  return drafters;
}

nlohmann::json StateJson(const LiveSample& sample) {
  const Counts& counts = sample.counts;
  const Gauges& gauges = sample.gauges;
  const auto pages = [&](Worker worker) {
    const int total = gauges.kv_pages[worker];
    return nlohmann::json{{"total", total}, {"used", total - gauges.free_kv_pages[worker]}};
  };
  nlohmann::json heads = nlohmann::json::array();
  for (const LiveHeads& one : sample.heads) {
    heads.push_back({{"name", one.name}, {"drafter", one.drafter}, {"pods", one.pods}});
  }
  return {{"slots", gauges.slots},
          {"heads", std::move(heads)},
          {"running", gauges.running},
          {"waiting", gauges.queued},
          {"verifier", sample.verifier_attached},
          {"drafter", sample.drafter_attached},
          {"has_drafter", sample.has_drafter},
          {"draft_model", sample.draft_model},
          {"drafter_problem", sample.drafter_problem},
          {"transport", sample.transport},
          {"pods", {{"total", sample.pods}, {"ready", sample.pods_ready}}},
          {"baseline_seconds", sample.baseline_seconds},
          {"kv", pages(Worker::kVerifier)},
          {"draft_kv", pages(Worker::kDrafter)},
          {"finished", counts.finished},
          {"preemptions", counts.preemptions},
          {"verifier_losses", counts.losses[Worker::kVerifier]},
          {"drafter_losses", counts.losses[Worker::kDrafter]},
          {"ring_errors", counts.ring_errors}};
}

}  // namespace

LiveHistory::LiveHistory(std::string version, std::string model, double started_at)
    : version_(std::move(version)), model_(std::move(model)), started_at_(started_at) {}

void LiveHistory::Add(LiveSample sample) {
  auto kept = std::make_shared<const LiveSample>(std::move(sample));
  const std::lock_guard<std::mutex> lock(mutex_);
  samples_.push_back(std::move(kept));
  if (samples_.size() > kMaxSamples) samples_.pop_front();
}

void LiveHistory::AddEvent(double time, LogLine::Level level, const std::string& text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  events_.push_back({time, level, text});
  if (events_.size() > kMaxEvents) events_.pop_front();
}

std::string LiveHistory::Json(double since) const {
  std::vector<std::shared_ptr<const LiveSample>> samples;
  std::vector<Event> events;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    samples.assign(samples_.begin(), samples_.end());
    events.assign(events_.begin(), events_.end());
  }
  nlohmann::json json = {{"version", version_},
                         {"model", model_},
                         {"started", started_at_},
                         {"samples", nlohmann::json::array()},
                         {"events", nlohmann::json::array()}};
  for (const auto& sample : samples) {
    if (sample->time > since) json["samples"].push_back(ToJson(*sample));
  }
  for (const Event& event : events) {
    if (event.time <= since) continue;
    json["events"].push_back(
        {{"t", event.time}, {"level", LevelName(event.level)}, {"text", event.text}});
  }
  if (!samples.empty()) {
    const LiveSample& last = *samples.back();
    const LiveSample& first =
        **std::find_if(samples.begin(), samples.end(), [&](const auto& sample) {
          return sample->time >= last.time - kPositionSeconds &&
                 sample->draft_model == last.draft_model;
        });
    json["state"] = StateJson(last);
    json["positions"] = {{"accepted", Difference(last.accepted_at, first.accepted_at)},
                         {"tested", Difference(last.tested_at, first.tested_at)}};
    json["drafters"] = DraftersJson(last, first);
  }
  // Names come from models' folders and may have any bytes.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tandem
