#include "services/router/audit/audit_monitor.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "proto/worker_replies.h"

namespace tandem {

void AuditMonitor::Statistics::Add(const v1::AuditSample& sample) {
  uniformity.Add(sample.uniform());
  draft_mode.Add(sample.draft_mode_excess());
  ++num_samples;
}

bool AuditMonitor::Statistics::Passes(double false_alarm_probability) const {
  // Each statistic gets one half of the probability.
  const double limit = std::log(2 / false_alarm_probability);
  return uniformity.log_evidence() >= limit || draft_mode.log_evidence() >= limit;
}

void AuditMonitor::Add(const v1::AuditSample& sample) {
  if (window_.num_samples == kWindowSamples) {
    window_ = Statistics();
    ++window_number_;
  }
  life_.Add(sample);
  window_.Add(sample);
  if (biased_) return;
  const bool impossible = sample.uniform() == 1;  // the token has no probability in the target
  // All samples get one half of the probability, and the windows get the other half. Window j gets
  // 1/(j (j + 1)) of the windows' half; these shares sum to 1.
  const auto j = static_cast<double>(window_number_);
  biased_ = impossible || life_.Passes(kFalseAlarmProbability / 2) ||
            window_.Passes(kFalseAlarmProbability / 2 / (j * (j + 1)));
  if (!biased_) return;
  absl::StrAppend(&alarm_, alarm_.empty() ? "" : "; ", "audit: after ", life_.num_samples,
                  " samples the output is not distributed as the target says: uniformity z ",
                  life_.uniformity.z(), ", draft mode z ", life_.draft_mode.z(),
                  " (about standard normal when lossless)",
                  impossible ? "; a token was committed that has no probability" : "");
}

absl::Status AuditMonitor::OnSamples(
    const google::protobuf::RepeatedPtrField<v1::AuditSample>& samples) {
  for (const v1::AuditSample& sample : samples) TANDEM_RETURN_IF_ERROR(CheckAuditSample(sample));
  for (const v1::AuditSample& sample : samples) Add(sample);
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
  stats.set_num_samples(life_.num_samples);
  stats.set_uniformity_z(life_.uniformity.z());
  stats.set_draft_mode_z(life_.draft_mode.z());
  stats.set_biased(biased_);
  return stats;
}

}  // namespace tandem
