// What an operator sees of a router's engines: of one, or summed over all pods.
#ifndef TANDEM_SERVICES_ROUTER_FLEET_FLEET_STATE_H_
#define TANDEM_SERVICES_ROUTER_FLEET_FLEET_STATE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "services/router/drafting/draft_length_controller.h"
#include "services/router/engine/counts.h"
#include "services/router/engine/pod_engine.h"
#include "tandem/v1/generate.pb.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// One draft model, over all pods.
struct DraftModelState {
  size_t number = 0;
  DraftPlace place;             // its role, and what it was loaded from
  double share = 0;             // as of DraftRoster::ShareOf
  uint32_t num_attached = 0;    // pods at which it is attached
  uint32_t num_loading = 0;     // pods whose draft worker has not answered yet, and may load it
  std::string problem_in_full;  // `problem` for the operator
  std::string name;             // as it was last found to fit; empty: it never was
  bool attached = false;        // at one pod at least
  std::string problem;          // why it is not attached at some pod
  // Transport of an open ring; UNSPECIFIED: none is open.
  v1::RingTransport transport = v1::RING_TRANSPORT_UNSPECIFIED;
};

// The heads of the verifiers, over all pods.
struct HeadsState {
  std::string name;     // that of their folder, as the first pod has them; empty: none
  std::string drafter;  // what they are: "medusa"; empty: there are none
  std::optional<std::string> wanted;  // as of HeadsChoice
  uint32_t num_attached = 0;          // pods whose verifier has what is wanted
  uint32_t num_loading = 0;           // pods whose verifier may be loading it
  std::string problem_in_full;        // why some pod does not have it, for the operator
  std::vector<std::string> kinds;     // the drafters of all pods, which may differ during a swap
  using Kind = std::pair<std::string, std::string>;  // as of `name` and `drafter`, or "", "none"
  std::map<Kind, uint32_t> num_pods;                 // pods that have such heads
};

// The name by which an operator may name the model: that of requests, of its folder, or of its
// worker.
std::string NameForOperator(const DraftModelState& model);

struct FleetState {
  Counts counts;
  Gauges gauges;
  v1::AuditStats audit;  // one audit covers all engines
  bool audit_failed = false;
  uint32_t num_pods_ready = 0;  // their verifiers serve
  uint32_t num_pods_lost = 0;
  std::vector<DraftModelState> draft_models;  // those that there are, by number
  SpeedComparison comparison;                 // the canary with the models that serve
  std::string compared;                       // that canary, which may be none any more
  HeadsState heads;
  std::vector<v1::RingTransport> transports;    // transports of open rings
  DraftLengthController::LastRound last_round;  // mean over the pods, by running requests

  // Adds the state of one more engine, but for the audit.
  void Add(const PodEngine& engine);

  // Whether a draft model is attached.
  bool drafter_attached() const;
  // Share of the draft models that are attached, each at one pod at least. A canary does not count
  // until it was attached once. 0: there are none.
  double attached_share() const;
  // Names of the draft models that are attached, with ", " between them. If none is, those of the
  // models that were found to fit.
  std::string drafter_names() const;
  // Why a draft model is not attached. Empty: all are, or no reason is known.
  std::string drafter_problem() const;

 private:
  void AddDraftModels(const PodEngine& engine);
  void AddHeads(const PodEngine& engine);
};

v1::ServerLoad ServerLoadOf(const FleetState& state);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_FLEET_FLEET_STATE_H_
