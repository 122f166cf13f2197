// The faults that one request has met since it last made progress.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_REQUEST_FAULTS_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_REQUEST_FAULTS_H_

#include <cstdint>

namespace tandem {

// Verifiers that died in a row with the same request in their batch.
struct VerifierDeaths {
  int num = 0;
  double last_at = 0;  // when the last of them was lost, in seconds
  uint32_t rows = 0;   // most rows of the request that any verifier held
};

// Tells a request that breaks workers from a request that was merely there when a worker broke.
class RequestFaults {
 public:
  // Largest number of consecutive resynchronizations of a slot without progress. One more fails the
  // request (verifier) or stops its drafting (drafter).
  static constexpr int kMaxResyncs = 3;

  // A verifier was lost while the request was in its batch.
  void VerifierLost(double now) {
    ++deaths_.num;
    deaths_.last_at = now;
  }
  // An earlier request of the same prompt ended after such losses.
  void TakeOver(const VerifierDeaths& deaths) { deaths_ = deaths; }
  // A verifier holds this number of rows of the request. If no verifier held as many before, the
  // request is not suspect anymore.
  void VerifierHolds(uint32_t num_rows) {
    if (num_rows > deaths_.rows) deaths_ = {0, deaths_.last_at, num_rows};
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
  VerifierDeaths deaths_;
  int verifier_resyncs_ = 0;
  int drafters_lost_ = 0;
  int drafter_resyncs_ = 0;
  bool drafting_off_ = false;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_REQUEST_FAULTS_H_
