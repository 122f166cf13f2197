// Which draft models and which heads a router uses, and the models for which requests.
#ifndef TANDEM_SERVICES_ROUTER_DRAFTING_ROSTER_DRAFT_ROSTER_H_
#define TANDEM_SERVICES_ROUTER_DRAFTING_ROSTER_DRAFT_ROSTER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rpc/protocol.h"
#include "services/router/drafting/roster/heads_choice.h"

namespace tandem {

enum class DraftRole : uint8_t {
  kAbsent,   // there is no model with this number
  kServing,  // drafts for all requests but those of a canary
  kCanary,   // drafts for a share of the requests, alone
  kStandby,  // drafts for requests that name it, and for all while no model that serves can
};

// Which of the two kinds of requests a request is, while there is a canary.
enum class DraftArm : uint8_t {
  kNone,     // it came before the canary could draft, or it does not choose its draft model
  kServing,  // models that serve draft for it
  kCanary,   // the canary drafts for it
};

// Whether some model of a role can draft now.
struct ReadyRoles {
  bool canary = false;
  bool serving = false;
};

// The role of the models that draft for a request of this arm, if it names no model. Without the
// canary, its requests are served like the others; without any model that serves, those that stand
// by draft.
inline DraftRole RoleFor(DraftArm arm, ReadyRoles ready) {
  if (arm == DraftArm::kCanary && ready.canary) return DraftRole::kCanary;
  return ready.serving ? DraftRole::kServing : DraftRole::kStandby;
}

struct DraftPlace {
  DraftRole role = DraftRole::kAbsent;
  // Attach.model: the model is loaded by the first draft worker. Empty: it is the model that the
  // draft worker of this number began with.
  std::string folder;

  bool operator==(const DraftPlace&) const = default;
};

// The models of one router, which are those of each of its pods. A model has a number, from 0 to
// kMaxDraftModels - 1, which is used again after the model was unloaded. Errors change nothing, and
// their messages are for the operator.
class DraftRoster {
 public:
  // `num_models`: models that the draft workers began with. All of them serve.
  explicit DraftRoster(uint32_t num_models = 0);

  const DraftPlace& place(size_t number) const { return places_[number]; }
  bool has(size_t number) const { return places_[number].role != DraftRole::kAbsent; }
  size_t CountWith(DraftRole role) const;
  size_t size() const { return kMaxDraftModels - CountWith(DraftRole::kAbsent); }
  std::optional<size_t> canary() const { return First(DraftRole::kCanary); }
  // Share of the requests for which the canary drafts. 0: there is no canary.
  double canary_share() const { return canary().has_value() ? canary_share_ : 0; }

  // Share of the requests without a name of a model that the model may draft for.
  double ShareOf(size_t number) const;

  // Adds a canary, and returns its number. FAILED_PRECONDITION: there is a canary, or the workers
  // began with no draft model. RESOURCE_EXHAUSTED: all numbers are taken. INVALID_ARGUMENT: `share`
  // is not in (0, 1], or `folder` is no name that requests could use. ALREADY_EXISTS: the folder is
  // loaded.
  absl::StatusOr<size_t> Load(const std::string& folder, double share);
  // The canary serves from now on, and the models that served stand by. FAILED_PRECONDITION: there
  // is no canary.
  absl::Status Promote();
  // Takes the last Promote back, once: the models that served before it serve again, and the others
  // that serve stand by. FAILED_PRECONDITION: none of those models is there any more, or it was
  // taken back already.
  absl::Status RollBack();
  // FAILED_PRECONDITION: no other model serves. PRECOND: has(number).
  absl::Status Unload(size_t number);

  // The arm of the n-th request since the canary is ready. Requests are spread by a hash of their
  // number, so that traffic with a period does not give one arm the harder ones.
  DraftArm ArmOf(uint64_t request) const;

  HeadsChoice& heads() { return heads_; }
  const HeadsChoice& heads() const { return heads_; }

  bool operator==(const DraftRoster&) const = default;

 private:
  std::optional<size_t> First(DraftRole role) const;
  // Lets exactly these models serve. Others that served stand by.
  void Serve(const std::array<bool, kMaxDraftModels>& serving);

  std::array<DraftPlace, kMaxDraftModels> places_;
  std::array<bool, kMaxDraftModels> former_ = {};  // served before the last Promote
  double canary_share_ = 0;
  HeadsChoice heads_;
};

// ALREADY_EXISTS: a draft model has this name.
absl::Status IsLoadedAlready(const std::string& name);

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_DRAFTING_ROSTER_DRAFT_ROSTER_H_
