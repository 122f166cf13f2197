// The results of the lossless audit (docs/audit.md): replays of finished requests, and samples of
// plainly sampled tokens. Pure: no clock, no I/O, one thread.
#ifndef TANDEM_SERVICES_ROUTER_AUDIT_AUDIT_MONITOR_H_
#define TANDEM_SERVICES_ROUTER_AUDIT_AUDIT_MONITOR_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "services/router/audit/audit_statistics.h"
#include "tandem/v1/generate.pb.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// The first difference between a replay and the output that the client got.
struct ReplayMismatch {
  uint32_t position = 0;  // position in the output, from 0
  int32_t emitted_token_id = 0;
  int32_t replayed_token_id = 0;
};

// A request may be sampled (SlotOpen.audit) if it has plain sampling, lenience 1, and a seed that
// the router drew. Samples of a client that repeats its own seed are not independent.
//
// All samples of a reply count, whatever its tokens are. Whether a sample counts may depend on the
// tokens before its token, but never on the token itself: leaving out stop tokens, or the rounds
// that end a request, would bias the statistics.
class AuditMonitor {
 public:
  // Probability that a statistic ever raises a false alarm about a lossless path, over the whole
  // life of the monitor.
  static constexpr double kFalseAlarmProbability = 1e-6;

  // Counts the samples of one VerifyResult, in their order. If a sample is out of range
  // (CheckAuditSample), this returns the error and counts none of them.
  absl::Status OnSamples(const google::protobuf::RepeatedPtrField<v1::AuditSample>& samples);

  // A finished request was decoded again without drafting. Without a mismatch, all tokens were the
  // same.
  void OnReplay(const std::string& request_id, const std::optional<ReplayMismatch>& mismatch);

  // Returns the error line about new findings since the last call: mismatches, and a statistic that
  // passed its limit. Empty: there are none.
  std::string TakeAlarm();

  // Returns true once there was a mismatch or a biased statistic. Never becomes false again.
  bool failed() const { return num_mismatches_ > 0 || biased_; }
  v1::AuditStats stats() const;

 private:
  // The statistics over all samples find a bias of any size in the end. But a bias that begins late
  // hides behind the unbiased samples before it. Therefore a window, which starts anew after this
  // number of samples, has statistics too.
  static constexpr uint64_t kWindowSamples = 131072;

  struct Statistics {
    UniformityStatistic uniformity;
    DraftModeStatistic draft_mode;
    uint64_t num_samples = 0;

    void Add(const v1::AuditSample& sample);
    bool Passes(double false_alarm_probability) const;
  };
  void Add(const v1::AuditSample& sample);

  uint64_t num_replayed_ = 0;
  uint64_t num_mismatches_ = 0;
  Statistics life_;
  Statistics window_;
  uint64_t window_number_ = 1;
  bool biased_ = false;
  std::string alarm_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_AUDIT_AUDIT_MONITOR_H_
