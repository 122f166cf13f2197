// When drafts of one kind are tried although something else is expected to be worth more.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_ACCEPTANCE_TRIAL_SCHEDULE_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_ACCEPTANCE_TRIAL_SCHEDULE_H_

#include <algorithm>
#include <cstdint>

namespace tandem {

// What the trials of all requests have shown of one kind of draft.
class TrialPrior {
 public:
  void Observe(bool succeeded) { success_ += kWeight * ((succeeded ? 1.0 : 0.0) - success_); }

  // Returns how many times a new request passes such drafts over before its first trial. A kind
  // that often succeeds is tried at once. A kind that mostly fails waits, but not in every request:
  // short requests would never try it otherwise.
  uint32_t NextFirstWait() {
    const bool is_turn = num_requests_++ % kRequestsPerTrial == 0;
    return is_turn || success_ >= kWorthTrying ? 0 : kLongestFirstWait;
  }

 private:
  static constexpr double kWeight = 0.1;
  static constexpr double kWorthTrying = 0.4;
  static constexpr uint32_t kRequestsPerTrial = 8;
  static constexpr uint32_t kLongestFirstWait = 128;

  double success_ = 1;  // share of the trials that succeeded; newer ones count more
  uint32_t num_requests_ = 0;
};

// The trials of one request. Without them, it would never be known that such drafts have become
// better. They become less frequent as long as they fail.
class TrialSchedule {
 public:
  // `prior` must outlive it.
  explicit TrialSchedule(TrialPrior* prior) : prior_(prior) {}

  // Such a draft could be made, and something else is expected to be worth more. Returns true if
  // the draft is to be tried nevertheless; OnTrial comes next. All slots of the batch wait for its
  // rows, so the more slots there are, the longer are the gaps.
  bool IsDue(uint32_t num_slots = 1) {
    if (!begun_) {
      begun_ = true;
      wait_ = prior_->NextFirstWait();
      gap_ = std::max(gap_, wait_);
    }
    if (passed_over_ < wait_ * num_slots) {
      ++passed_over_;
      return false;
    }
    return true;
  }

  // `is_used`: the draft is part of the round. Otherwise, the controller expects too little of it,
  // and it is tried later.
  void OnTrial(bool is_used) {
    is_trial_ = is_used;
    if (!is_used) gap_ = std::min(2 * gap_, kLongestGap);
    passed_over_ = 0;
    wait_ = gap_;
  }

  bool is_trial() const { return is_trial_; }  // a trial has not been judged yet

  // Such a draft was judged, whether it was a trial or not.
  void OnJudged(bool succeeded) {
    gap_ = succeeded ? kFirstGap : std::min(2 * gap_, kLongestGap);
    if (is_trial_) prior_->Observe(succeeded);
    is_trial_ = false;
  }

 private:
  static constexpr uint32_t kFirstGap = 8;
  static constexpr uint32_t kLongestGap = 128;

  TrialPrior* prior_;
  bool begun_ = false;
  bool is_trial_ = false;     // the draft that is judged next was tried
  uint32_t passed_over_ = 0;  // drafts since the last trial
  uint32_t wait_ = 0;         // so many drafts are passed over before the next trial, in one slot
  uint32_t gap_ = kFirstGap;  // the same after that trial
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_ACCEPTANCE_TRIAL_SCHEDULE_H_
