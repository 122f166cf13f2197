#include "services/router/client_calls/draft_model_calls.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>

#include "common/monotonic_seconds.h"
#include "common/status.h"
#include "services/router/fleet/fleet_drafters.h"
#include "services/router/fleet/fleet_state.h"

namespace tandem {
namespace {

constexpr size_t kMaxUnreadListBytes = size_t{1} << 20;
constexpr double kDefaultShare = 0.1;

v1::DraftModelRole RoleOf(DraftRole role) {
  switch (role) {
    case DraftRole::kServing:
      return v1::DRAFT_MODEL_ROLE_SERVING;
    case DraftRole::kCanary:
      return v1::DRAFT_MODEL_ROLE_CANARY;
    case DraftRole::kStandby:
      return v1::DRAFT_MODEL_ROLE_STANDBY;
    case DraftRole::kAbsent:
      break;
  }
  return v1::DRAFT_MODEL_ROLE_UNSPECIFIED;
}

v1::DraftModelComparison ComparisonOf(const std::string& canary, const SpeedComparison& speeds) {
  v1::DraftModelComparison comparison;
  comparison.set_canary(canary);
  comparison.set_canary_requests(speeds.num_requests(DraftArm::kCanary));
  comparison.set_serving_requests(speeds.num_requests(DraftArm::kServing));
  if (const std::optional<SpeedRatio> ratio = speeds.Ratio()) {
    comparison.set_ratio(ratio->ratio);
    comparison.set_low(ratio->low);
    comparison.set_high(ratio->high);
  }
  return comparison;
}

v1::SwappableHeads HeadsOf(const HeadsState& heads) {
  v1::SwappableHeads listed;
  listed.set_heads(heads.name);
  listed.set_drafter(heads.drafter);
  listed.set_num_attached(heads.num_attached);
  listed.set_num_loading(heads.num_loading);
  listed.set_problem(heads.problem_in_full);
  if (heads.wanted.has_value()) listed.set_wanted(*heads.wanted);
  return listed;
}

}  // namespace

template <typename Request, typename Take, typename Change>
DraftModelCalls::Method<Request> DraftModelCalls::MethodOf(const char* name, Take take,
                                                           Change change) {
  return Method<Request>(
      context_.queue, &unread_replies_,
      [this, take](auto* call, auto* request, auto* writer, void* tag) {
        (context_.draft_models->*take)(call, request, writer, context_.queue, context_.queue, tag);
      },
      GateOf(context_, name),
      [this, change](const Request& request, const auto& respond) {
        respond(ListAfter(change(request, MonotonicSeconds(), context_.fleet)));
      });
}

using Service = v1::DraftModels::AsyncService;

DraftModelCalls::DraftModelCalls(const CallContext& context)
    : context_(context),
      unread_replies_(kMaxUnreadListBytes),
      list_(
          MethodOf<v1::ListDraftModelsRequest>(kListDraftModelsMethod, &Service::RequestList,
                                               [](const auto& /*request*/, double /*now*/,
                                                  Fleet* /*fleet*/) { return absl::OkStatus(); })),
      load_(MethodOf<v1::LoadDraftModelRequest>(
          kLoadDraftModelMethod, &Service::RequestLoad,
          [](const auto& request, double now, Fleet* fleet) {
            const double share = request.has_share() ? request.share() : kDefaultShare;
            return LoadDraftModel(request.model(), share, now, fleet);
          })),
      promote_(MethodOf<v1::PromoteDraftModelRequest>(
          kPromoteDraftModelMethod, &Service::RequestPromote,
          [](const auto& /*request*/, double now, Fleet* fleet) {
            return PromoteDraftModel(now, fleet);
          })),
      roll_back_(MethodOf<v1::RollBackDraftModelsRequest>(
          kRollBackDraftModelsMethod, &Service::RequestRollBack,
          [](const auto& /*request*/, double now, Fleet* fleet) {
            return RollBackDraftModels(now, fleet);
          })),
      unload_(MethodOf<v1::UnloadDraftModelRequest>(
          kUnloadDraftModelMethod, &Service::RequestUnload,
          [](const auto& request, double now, Fleet* fleet) {
            return UnloadDraftModel(request.model(), now, fleet);
          })),
      swap_heads_(MethodOf<v1::SwapHeadsRequest>(kSwapHeadsMethod, &Service::RequestSwapHeads,
                                                 [](const auto& request, double now, Fleet* fleet) {
                                                   return SwapHeads(request.heads(), now, fleet);
                                                 })),
      roll_back_heads_(
          MethodOf<v1::RollBackHeadsRequest>(kRollBackHeadsMethod, &Service::RequestRollBackHeads,
                                             [](const auto& request, double now, Fleet* fleet) {
                                               return RollBackHeads(request.heads(), now, fleet);
                                             })) {}

void DraftModelCalls::Serve() {
  list_.Serve();
  load_.Serve();
  promote_.Serve();
  roll_back_.Serve();
  unload_.Serve();
  swap_heads_.Serve();
  roll_back_heads_.Serve();
}

absl::StatusOr<v1::DraftModelList> DraftModelCalls::ListAfter(const absl::Status& change) const {
  TANDEM_RETURN_IF_ERROR(change);
  const FleetState state = context_.fleet->State();
  v1::DraftModelList list;
  for (const DraftModelState& model : state.draft_models) {
    v1::SwappableDraftModel& listed = *list.add_models();
    listed.set_name(NameForOperator(model));
    listed.set_role(RoleOf(model.place.role));
    listed.set_attached(model.attached);
    listed.set_share(model.share);
    listed.set_num_pods(static_cast<uint32_t>(context_.fleet->num_pods()));
    listed.set_num_attached(model.num_attached);
    listed.set_num_loading(model.num_loading);
    if (model.num_attached < context_.fleet->num_pods()) {
      listed.set_problem(model.problem_in_full);
    }
    listed.set_loaded_later(!model.place.folder.empty());
  }
  *list.mutable_heads() = HeadsOf(state.heads);
  list.mutable_heads()->set_num_pods(static_cast<uint32_t>(context_.fleet->num_pods()));
  const DrafterSet& used = context_.validator->limits().drafters;
  list.mutable_heads()->set_only_if_named(
      std::none_of(std::begin(kSelfDrafters), std::end(kSelfDrafters),
                   [&used](Drafter drafter) { return used.contains(drafter); }));
  *list.mutable_comparison() = ComparisonOf(state.compared, state.comparison);
  return list;
}

}  // namespace tandem
