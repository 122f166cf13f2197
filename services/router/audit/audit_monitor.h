// What the lossless audit has seen (docs/audit.md): replays of finished requests, and samples of
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

// Where a replay first differs from what the client got.
struct ReplayMismatch {
  uint32_t position = 0;  // in the output, from 0
  int32_t emitted_token_id = 0;
  int32_t replayed_token_id = 0;
};

// Which requests may be sampled (SlotOpen.audit): plain sampling, lenience 1, and a seed that the
// router drew. A client that repeats its own seed repeats its samples: they are not independent.
//
// Which samples count: all of a reply, without a look at its tokens. Whether a sample counts may
// depend on what came before its token, never on the token: leaving out stop tokens, or the rounds
// that end a request, biases.
class AuditMonitor {
 public:
  // That either statistic is ever wrong about a lossless path, over the whole life of the monitor.
  static constexpr double kFalseAlarmProbability = 1e-6;

  // Counts the samples of one VerifyResult, in their order. If a sample is out of range
  // (CheckAuditSample), this returns the error and counts none of them.
  absl::Status OnSamples(const google::protobuf::RepeatedPtrField<v1::AuditSample>& samples);

  // A finished request was decoded again without drafting. No mismatch: token for token the same.
  void OnReplay(const std::string& request_id, const std::optional<ReplayMismatch>& mismatch);

  // The error line of what went wrong since the last call: a mismatch, or a statistic that passed
  // its limit. Empty: nothing.
  std::string TakeAlarm();

  // A mismatch, or biased: both stay.
  bool failed() const { return num_mismatches_ > 0 || biased_; }
  v1::AuditStats stats() const;

 private:
  // Over all samples a bias of any size is seen in the end, but one that begins late hides behind
  // the honest samples before it: hence also a window that starts anew.
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
