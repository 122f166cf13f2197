// The results of the lossless audit (docs/audit.md): replays of finished requests, and samples of
// plainly sampled tokens. Pure: no clock, no I/O, one thread.
#ifndef TANDEM_SERVICES_ROUTER_AUDIT_AUDIT_MONITOR_H_
#define TANDEM_SERVICES_ROUTER_AUDIT_AUDIT_MONITOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "services/router/audit/audit_statistics.h"
#include "services/router/drafting/drafter_set.h"
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
//
// Evidence is kept in pots: one for each drafter, one for rounds without a draft, and one for all
// samples together. So a mistake of a rarely used drafter does not drown in the samples of others,
// and a mistake that all share is found with the samples of all. The pot of a sample is that of the
// drafter whose draft was sent with the Verify of its round. The rule for a sample above holds for
// its pot too: the pot must be known before the token is drawn. It is, because the router chooses
// the drafter before the verifier judges, and does not change the choice afterwards: rejected
// tokens, a draft that the verifier could not read, and a draft of which only the bonus is left
// stay in the drafter's pot. (A pot of the accepted tokens, say, would be biased on a lossless
// path.) A sample of another pot multiplies the likelihood ratios of a pot by 1, so each is still a
// martingale in the order of all samples. Its probability of a false alarm is therefore at most its
// share of the budget, and the shares sum to the whole.
class AuditMonitor {
 public:
  // Probability that there is ever a false alarm about a lossless path, over the whole life of the
  // monitor and all pots.
  static constexpr double kFalseAlarmProbability = 1e-6;
  // Pots that share the probability, each with the same part: those of the drafters, of rounds
  // without a draft, and of all samples. The number is fixed, whichever drafters a server has.
  static constexpr size_t kNumPots = kNumDrafters + 2;

  // Counts the samples of one VerifyResult, in their order. `drafter` made the draft that was sent
  // for it; none: there was no draft. Several draft models are one drafter. If a sample is out of
  // range (CheckAuditSample), this returns the error and counts none of them.
  absl::Status OnSamples(std::optional<Drafter> drafter,
                         const google::protobuf::RepeatedPtrField<v1::AuditSample>& samples);

  // A finished request was decoded again without drafting. Without a mismatch, all tokens were the
  // same.
  void OnReplay(const std::string& request_id, const std::optional<ReplayMismatch>& mismatch);

  // Returns the error line about new findings since the last call: mismatches, and pots that passed
  // their limit. Each drafter is named once. The pot of all samples is named only before any
  // drafter is. Empty: there are no findings.
  std::string TakeAlarm();

  // Returns true once there was a mismatch or a biased pot. Never becomes false again.
  bool failed() const { return num_mismatches_ > 0 || biased_; }
  v1::AuditStats stats() const;

 private:
  // The statistics over all samples find a bias of any size in the end. But a bias that begins late
  // hides behind the unbiased samples before it. Therefore a window, which starts anew after this
  // number of samples of its pot, has statistics too.
  static constexpr uint64_t kWindowSamples = 131072;

  static constexpr double kPotProbability = kFalseAlarmProbability / kNumPots;

  struct Statistics {
    UniformityStatistic uniformity;
    DraftModeStatistic draft_mode;
    uint64_t num_samples = 0;

    void Add(const v1::AuditSample& sample);
    double log_evidence() const;  // that of the statistic with more
    bool Passes(double false_alarm_probability) const;
  };
  struct Pot {
    Statistics life;
    Statistics window;
    uint64_t window_number = 1;
    bool biased = false;

    void Add(const v1::AuditSample& sample);
    bool Passes(double false_alarm_probability) const;
    // Returns the part with more evidence. That of a bias that began late is the window.
    const Statistics& Strongest() const {
      return window.log_evidence() > life.log_evidence() ? window : life;
    }
  };

  void Add(size_t pot, const v1::AuditSample& sample);
  // `suffix` ends the line.
  void Report(const Statistics& statistics, const std::string& whose, const std::string& suffix);
  // The drafter with the strongest evidence, in words.
  std::string Suspect() const;

  uint64_t num_replayed_ = 0;
  uint64_t num_mismatches_ = 0;
  std::array<Pot, kNumDrafters + 1> pots_;  // by Drafter; the last one: rounds without a draft
  Pot all_;
  bool biased_ = false;
  std::string alarm_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_AUDIT_AUDIT_MONITOR_H_
