// The faults that one request has met since it last made progress.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_REQUEST_FAULTS_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_REQUEST_FAULTS_H_

namespace tandem {

// Tells a request that breaks workers from a request that was merely there when a worker broke.
class RequestFaults {
 public:
  // Largest number of consecutive resynchronizations of a slot without progress. One more fails the
  // request (verifier) or stops its drafting (drafter).
  static constexpr int kMaxResyncs = 3;

  // A verifier was lost while the request was in its batch.
  void VerifierLost(double now) {
    ++verifiers_lost_;
    suspected_at_ = now;
  }
  // A verifier holds more rows of the request than any verifier did before.
  void VerifierGotFurther() { verifiers_lost_ = 0; }
  // Number of verifiers lost in a row, and when the last of them was lost.
  int verifiers_lost() const { return verifiers_lost_; }
  double suspected_at() const { return suspected_at_; }

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
  int verifiers_lost_ = 0;
  double suspected_at_ = 0;
  int verifier_resyncs_ = 0;
  int drafters_lost_ = 0;
  int drafter_resyncs_ = 0;
  bool drafting_off_ = false;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_REQUEST_FAULTS_H_
