// Decodes endless requests speculatively over synthetic models, and audits them as the verifier
// does. At most one mistake is planted.
#ifndef TANDEM_TESTS_AUDIT_AUDITED_DECODER_H_
#define TANDEM_TESTS_AUDIT_AUDITED_DECODER_H_

#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/sampling/audit_sample.h"
#include "kernels/sampling/transform/sampling_params.h"
#include "kernels/sampling/transform/token_counts.h"
#include "tests/kernels/sampling/distribution/synthetic_model.h"

namespace tandem::testing {

enum class Mistake {
  kNone,
  // Mistakes around AcceptReject, which judges its inputs.
  kLenience,                     // accepts with lenience 0.7
  kDraftRowsBeforeTopK,          // q rows differ from the rows that the tokens were drawn from
  kProposalSharesAcceptUniform,  // the drafter drew with the u of the acceptance test
  // Mistakes in an accept step of this test. AcceptReject cannot make them.
  kNoneInOwnStep,                 // the control
  kAcceptsAtEquality,             // p/q >= u with an 8-bit u: tokens of p = 0 pass at u = 0
  kResidualIsAbsoluteDifference,  // |p - q| without clipping
  kResidualIsTarget,              // p
  kSharedUniform,                 // the u of the acceptance test draws from the residual too
  kSharedGumbelNoise,             // one Gumbel noise for proposal and residual
  kBonusFromWrongRow,             // the row before the last
  kDropsUnlikelyDrafts,           // a draft token is withdrawn because its own q is low
};

struct AuditScenario {
  SyntheticModel target;
  std::optional<SyntheticModel> drafter;  // none: plain decoding
  bool one_hot_drafter = false;           // proposes its argmax, without q rows
  SamplingParams params;                  // seed and audit are set by the decoder
  Mistake mistake = Mistake::kNone;
};

class AuditedDecoder {
 public:
  // `random_seed` determines the seeds and prompts of all requests.
  AuditedDecoder(AuditScenario scenario, uint64_t random_seed);

  // Returns the samples of the next round, in order. Valid until the next call.
  std::span<const AuditSample> Round();

  int64_t num_tested() const { return num_tested_; }  // up to and including the first rejection
  int64_t num_accepted() const { return num_accepted_; }

 private:
  void StartRequest();
  void Propose(int32_t draft_length);
  // Computes the rows of p for every position of the block.
  void ScoreBlock();
  void JudgeByAcceptReject();
  void JudgeByOwnStep();
  int32_t Recover(std::span<const double> p, std::span<const double> q, uint64_t position) const;
  void Commit(int32_t token_id);

  AuditScenario scenario_;
  std::mt19937_64 random_;
  size_t vocabulary_size_;
  std::vector<int32_t> sequence_;  // prompt and committed output
  size_t prompt_length_ = 0;
  TokenCounts counts_;
  std::vector<int32_t> draft_;
  // [K, V]; the rows that the verifier gets; a mistake may change them.
  std::vector<float> draft_log_probs_;
  std::vector<float> logits_;  // [K+1, V]
  std::vector<float> scratch_;
  std::vector<AuditSample> samples_;
  int64_t num_tested_ = 0;
  int64_t num_accepted_ = 0;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_AUDIT_AUDITED_DECODER_H_
