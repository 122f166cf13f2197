// The faults that one request has met since it last made progress.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_REQUEST_FAULTS_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_REQUEST_FAULTS_H_

#include <algorithm>
#include <cstdint>

namespace tandem {

// Verifiers that died in a row with the same request in their batch. Times are in seconds.
struct VerifierDeaths {
  int num = 0;
  double counted_at = 0;  // when the last of the counted verifiers was lost
  double last_at = 0;     // when the last verifier was lost, counted or not
  uint32_t rows = 0;      // most rows of the request that any verifier held, or died of

  // A verifier was lost at `now` while it computed the request's row `num_rows` + 1. `heard_at`:
  // when that verifier last answered anything. If it was silent since the last counted death, one
  // outage may have taken both, and the two count once.
  void Add(uint32_t num_rows, double heard_at, double now) {
    if (num == 0 || heard_at > counted_at) {
      ++num;
      counted_at = now;
    }
    last_at = now;
    rows = std::max(rows, num_rows);
  }
};

// What is known of a prompt from a request. No death: a verifier holds `rows` rows of the request.
struct PromptDeaths {
  uint64_t prompt_hash = 0;  // common/token_hash.h
  VerifierDeaths deaths;
  // Whether other requests with the prompt learn of it. Deaths of a request whose whole prompt was
  // computed are kept for requests that come later, and tell nothing about those that run.
  bool concerns_copies = true;
};

// Tells a request that breaks workers from a request that was merely there when a worker broke.
class RequestFaults {
 public:
  // Largest number of consecutive resynchronizations of a slot without progress. One more fails the
  // request (verifier) or stops its drafting (drafter).
  static constexpr int kMaxResyncs = 3;

  // A verifier was lost while the request was in its batch (VerifierDeaths::Add).
  void VerifierLost(uint32_t num_rows, double heard_at, double now) {
    deaths_.Add(num_rows, heard_at, now);
    own_.Add(num_rows, heard_at, now);
    deaths_.num = std::max(deaths_.num, own_.num);
  }
  // What another request with the same prompt has met, up to the end of the prompt. If a verifier
  // got further with it, only the own deaths of this request remain: the cause may be in what the
  // two requests do not share.
  void TakeOver(const VerifierDeaths& deaths) {
    if (deaths.num == 0) {
      if (deaths.rows <= deaths_.rows) return;
      const double last_at = deaths_.last_at;
      deaths_ = own_;
      deaths_.last_at = last_at;
      return;
    }
    deaths_.last_at = std::max(deaths_.last_at, deaths.last_at);
    if (deaths.num < deaths_.num) return;
    deaths_.rows = std::max(deaths_.rows, deaths.rows);
    if (deaths.num == deaths_.num) return;
    deaths_.num = deaths.num;
    deaths_.counted_at = deaths.counted_at;
  }
  // A verifier holds this number of rows of the request. If no verifier held as many before, the
  // request is not suspect anymore.
  void VerifierHolds(uint32_t num_rows) {
    for (VerifierDeaths* deaths : {&deaths_, &own_}) {
      if (num_rows <= deaths->rows) continue;
      deaths->rows = num_rows;
      deaths->num = 0;
    }
  }
  // Number of verifiers lost in a row, and when the last of them was lost.
  const VerifierDeaths& verifier_deaths() const { return deaths_; }
  int verifiers_lost() const { return deaths_.num; }
  double suspected_at() const { return deaths_.last_at; }

  // The verifier held other rows than the router thought. Returns true if this happened too often.
  bool VerifierDisagreed() { return ++verifier_resyncs_ > kMaxResyncs; }
  void VerifierAgreed() { verifier_resyncs_ = 0; }

  // The same for the drafter, whose faults only stop the drafting.
  void DrafterLost(int max_losses) {
    if (++drafters_lost_ >= max_losses) drafting_off_ = true;
  }
  int drafters_lost() const { return drafters_lost_; }
  void DrafterDisagreed() {
    if (++drafter_resyncs_ > kMaxResyncs) drafting_off_ = true;
  }
  void DrafterAgreed() {
    drafter_resyncs_ = 0;
    drafters_lost_ = 0;
  }
  // The drafter cannot serve this request.
  void StopDrafting() { drafting_off_ = true; }
  bool drafting_off() const { return drafting_off_; }

  // The request goes on with other workers. They may serve what the former workers could not,
  // unless drafters died of the request.
  void Moved(int max_losses) {
    verifier_resyncs_ = 0;
    drafter_resyncs_ = 0;
    drafting_off_ = drafters_lost_ >= max_losses;
  }

 private:
  VerifierDeaths deaths_;  // its own, and those of other requests with its prompt
  VerifierDeaths own_;
  int verifier_resyncs_ = 0;
  int drafters_lost_ = 0;
  int drafter_resyncs_ = 0;
  bool drafting_off_ = false;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_REQUEST_FAULTS_H_
