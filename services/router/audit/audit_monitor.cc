#include "services/router/audit/audit_monitor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "proto/worker_replies.h"

namespace tandem {

namespace {

constexpr size_t kNoDraft = kNumDrafters;  // the pot of rounds without a draft

std::string PotName(size_t pot) {
  return pot == kNoDraft ? "none" : DrafterName(static_cast<Drafter>(pot));
}

// "uniformity z 0.21, draft mode z 6.24"
template <class Statistics>
std::string ZValues(const Statistics& statistics) {
  return absl::StrCat("uniformity z ", statistics.uniformity.z(), ", draft mode z ",
                      statistics.draft_mode.z());
}

}  // namespace

void AuditMonitor::Statistics::Add(const v1::AuditSample& sample) {
  uniformity.Add(sample.uniform());
  draft_mode.Add(sample.draft_mode_excess());
  ++num_samples;
}

double AuditMonitor::Statistics::log_evidence() const {
  return std::max(uniformity.log_evidence(), draft_mode.log_evidence());
}

bool AuditMonitor::Statistics::Passes(double false_alarm_probability) const {
  // Each statistic gets one half of the probability.
  return log_evidence() >= std::log(2 / false_alarm_probability);
}

void AuditMonitor::Pot::Add(const v1::AuditSample& sample) {
  if (window.num_samples == kWindowSamples) {
    window = Statistics();
    ++window_number;
  }
  life.Add(sample);
  window.Add(sample);
}

bool AuditMonitor::Pot::Passes(double false_alarm_probability) const {
  // All samples get one half of the probability, and the windows get the other half. Window j gets
  // 1/(j (j + 1)) of the windows' half; these shares sum to 1.
  const auto j = static_cast<double>(window_number);
  return life.Passes(false_alarm_probability / 2) ||
         window.Passes(false_alarm_probability / 2 / (j * (j + 1)));
}

void AuditMonitor::Add(size_t pot, const v1::AuditSample& sample) {
  Pot& own = pots_[pot];
  own.Add(sample);
  all_.Add(sample);
  const bool impossible = sample.uniform() == 1;  // the token has no probability in the target
  if (!own.biased && (impossible || own.Passes(kPotProbability))) {
    own.biased = true;
    biased_ = true;
    Report(own.Strongest(),
           pot == kNoDraft ? "rounds without a draft (none)"
                           : absl::StrCat("the drafter ", PotName(pot)),
           impossible ? "; a token was committed that has no probability" : "");
  }
  if (biased_ || !all_.Passes(kPotProbability)) return;
  biased_ = true;
  Report(all_.Strongest(), "all drafters together", Suspect());
}

void AuditMonitor::Report(const Statistics& statistics, const std::string& whose,
                          const std::string& suffix) {
  absl::StrAppend(&alarm_, alarm_.empty() ? "" : "; ", "audit: after ", statistics.num_samples,
                  " samples of ", whose,
                  " the output is not distributed as the target says: ", ZValues(statistics),
                  " (about standard normal when lossless)", suffix);
}

std::string AuditMonitor::Suspect() const {
  const auto pot = std::max_element(pots_.begin(), pots_.end(), [](const Pot& a, const Pot& b) {
    return a.Strongest().log_evidence() < b.Strongest().log_evidence();
  });
  const Statistics& statistics = pot->Strongest();
  return absl::StrCat("; the strongest evidence is that of ",
                      PotName(static_cast<size_t>(pot - pots_.begin())), ": ",
                      statistics.num_samples, " samples, ", ZValues(statistics));
}

absl::Status AuditMonitor::OnSamples(
    std::optional<Drafter> drafter,
    const google::protobuf::RepeatedPtrField<v1::AuditSample>& samples) {
  for (const v1::AuditSample& sample : samples) TANDEM_RETURN_IF_ERROR(CheckAuditSample(sample));
  const size_t pot = drafter.has_value() ? static_cast<size_t>(*drafter) : kNoDraft;
  for (const v1::AuditSample& sample : samples) Add(pot, sample);
  return absl::OkStatus();
}

void AuditMonitor::OnReplay(const std::string& request_id,
                            const std::optional<ReplayMismatch>& mismatch) {
  ++num_replayed_;
  if (!mismatch.has_value()) return;
  ++num_mismatches_;
  absl::StrAppend(&alarm_, alarm_.empty() ? "" : "; ", "audit: request ", request_id,
                  " decoded again without drafting differs first at output token ",
                  mismatch->position, ": emitted ", mismatch->emitted_token_id, ", replayed ",
                  mismatch->replayed_token_id);
}

std::string AuditMonitor::TakeAlarm() { return std::exchange(alarm_, {}); }

v1::AuditStats AuditMonitor::stats() const {
  v1::AuditStats stats;
  stats.set_num_replayed(num_replayed_);
  stats.set_num_mismatches(num_mismatches_);
  stats.set_num_samples(all_.life.num_samples);
  stats.set_uniformity_z(all_.life.uniformity.z());
  stats.set_draft_mode_z(all_.life.draft_mode.z());
  stats.set_biased(biased_);
  for (size_t i = 0; i < pots_.size(); ++i) {
    const Statistics& life = pots_[i].life;
    if (life.num_samples == 0) continue;
    v1::AuditDrafterStats& drafter = *stats.add_drafters();
    drafter.set_name(PotName(i));
    drafter.set_num_samples(life.num_samples);
    drafter.set_uniformity_z(life.uniformity.z());
    drafter.set_draft_mode_z(life.draft_mode.z());
    drafter.set_biased(pots_[i].biased);
  }
  return stats;
}

}  // namespace tandem
