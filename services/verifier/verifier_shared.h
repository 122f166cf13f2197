// What all sessions of one verifier share, besides its model.
#ifndef TANDEM_SERVICES_VERIFIER_VERIFIER_SHARED_H_
#define TANDEM_SERVICES_VERIFIER_VERIFIER_SHARED_H_

#include "services/verifier/heads_shelf.h"
#include "services/verifier/verifier_ring.h"
#include "services/worker/worker_model.h"

namespace tandem {

struct VerifierShared {
  // `model` must outlive the object.
  explicit VerifierShared(WorkerModel* model) : heads(model) {}

  VerifierRings rings;
  HeadsShelf heads;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_VERIFIER_VERIFIER_SHARED_H_
