// Counterexamples: what the output becomes when one of the rules of drafting is broken, in the
// smallest case that has a known figure. Each case runs through the real draws and AcceptReject,
// and through the audit's samples, with the rule kept and with the rule broken.
#ifndef TANDEM_TESTS_KERNELS_SAMPLING_DISTRIBUTION_COUNTEREXAMPLE_H_
#define TANDEM_TESTS_KERNELS_SAMPLING_DISTRIBUTION_COUNTEREXAMPLE_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/sampling/audit_sample.h"

namespace tandem::testing {

// The token that a counterexample is about, and its sample for the audit.
struct CounterexampleDraw {
  int32_t token_id = -1;
  AuditSample sample;
};

struct Counterexample {
  std::string name;
  std::vector<double> target;  // the law of the token under the target alone
  std::vector<double> biased;  // its law when the rule is broken
  // Draws the token of the request with this seed. Seeds that differ give independent tokens.
  CounterexampleDraw (*draw)(uint64_t seed, bool breaks_rule);
};
inline void PrintTo(const Counterexample& example, std::ostream* out) { *out << example.name; }

// Drawn siblings keep their order. p = q = (.6, .4), and two children are drawn without
// replacement. Sorted by q, they give (1, 0).
Counterexample SortedSiblings();

// Each sibling has a uniform number of its own. Two models have q = (.7, .1, .1, .1), and
// p = (.1, .2, .3, .4). With one number they propose the same token twice. Then the second token
// has the probability .1 + .6 · 2/21 = .157, and not .2.
Counterexample SharedUniform();

// A drawn sibling is judged even if its token was drawn before. With the same p and q and two
// independent draws, a second sibling that is dropped as the first one again gives the second token
// .23, and the last one .37.
Counterexample DroppedDuplicate();

// Found siblings come after drawn ones, because they may depend on these. p = q = (1/2, 1/4, 1/4),
// and the favorite that the drawn sibling left is found. Judged first, by a one-hot q, it gives
// (5/8, 1/4, 1/8).
Counterexample FoundFirst();

// Whether a slot drafts does not depend on a draft token that an earlier round discarded, because
// the same number draws it again. p = q = (1/2, 1/2). A slot that drafts only if the discarded
// token was the first one gives that token with probability 3/4.
Counterexample EarlierDraft();

// A draft token that was found is compared with the target's own draw, and not with a number that
// chose it before. p = (.7, .3), and each request predicts the answer to the one before with the
// same seed. By the rule min(1, p/q), the third request gives the first token with .82.
Counterexample Prediction();

// The same chain of three requests with a seed for each of them. The rule min(1, p/q) is right
// then.
Counterexample PredictionWithOwnSeeds();

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_KERNELS_SAMPLING_DISTRIBUTION_COUNTEREXAMPLE_H_
