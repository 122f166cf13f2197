// The faults that one request has met since it last made progress.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_REQUEST_FAULTS_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_REQUEST_FAULTS_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "common/rpc/protocol.h"

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

// What one draft model has met with a request. Such faults only stop drafts of this model.
class DrafterFaults {
 public:
  // Largest number of consecutive resynchronizations of a slot without progress. One more stops the
  // drafting, or fails the request (RequestFaults).
  static constexpr int kMaxResyncs = 3;

  void Lost(int max_losses) {
    if (++num_lost_ >= max_losses) off_ = true;
  }
  int num_lost() const { return num_lost_; }
  // The drafter held other rows than the router thought.
  void Disagreed() {
    if (++resyncs_ > kMaxResyncs) off_ = true;
  }
  void Agreed() { resyncs_ = num_lost_ = 0; }
  // The drafter cannot serve this request.
  void Stop() { off_ = true; }
  bool off() const { return off_; }
  // As RequestFaults::Moved.
  void Moved(int max_losses) {
    resyncs_ = 0;
    off_ = num_lost_ >= max_losses;
  }

 private:
  int num_lost_ = 0;
  int resyncs_ = 0;
  bool off_ = false;
};

// Tells a request that breaks workers from a request that was merely there when a worker broke.
class RequestFaults {
 public:
  static constexpr int kMaxResyncs = DrafterFaults::kMaxResyncs;

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

  // PRECOND: `draft_model` is the number of a draft model.
  DrafterFaults& drafter(uint32_t draft_model) { return drafters_[draft_model]; }
  const DrafterFaults& drafter(uint32_t draft_model) const { return drafters_[draft_model]; }

  // The request goes on with other workers. They may serve what the former workers could not,
  // unless drafters died of the request.
  void Moved(int max_losses) {
    verifier_resyncs_ = 0;
    for (DrafterFaults& drafter : drafters_) drafter.Moved(max_losses);
  }

 private:
  VerifierDeaths deaths_;  // its own, and those of other requests with its prompt
  VerifierDeaths own_;
  int verifier_resyncs_ = 0;
  std::array<DrafterFaults, kMaxDraftModels> drafters_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_REQUEST_FAULTS_H_
