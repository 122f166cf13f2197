#include "services/router/client_calls/draft_model_calls.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "common/monotonic_seconds.h"
#include "common/security/call_interceptor.h"
#include "common/status.h"
#include "services/router/fleet/fleet_drafters.h"
#include "services/router/fleet/fleet_state.h"

namespace tandem {
namespace {

constexpr size_t kMaxUnreadListBytes = size_t{1} << 20;
constexpr double kDefaultShare = 0.1;

std::function<absl::Status(const grpc::ServerContext&)> GateOf(const CallContext& context,
                                                               const char* method) {
  return [gate = context.gate, method](const grpc::ServerContext& call) {
    return CheckCall(*gate, method, call);
  };
}

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

}  // namespace

DraftModelCalls::DraftModelCalls(const CallContext& context)
    : context_(context),
      unread_replies_(kMaxUnreadListBytes),
      list_(
          context_.queue, &unread_replies_,
          [this](auto* call, auto* request, auto* writer, void* tag) {
            context_.draft_models->RequestList(call, request, writer, context_.queue,
                                               context_.queue, tag);
          },
          GateOf(context_, kListDraftModelsMethod),
          [this](const auto& /*request*/, const auto& respond) {
            respond(ListAfter(absl::OkStatus()));
          }),
      load_(
          context_.queue, &unread_replies_,
          [this](auto* call, auto* request, auto* writer, void* tag) {
            context_.draft_models->RequestLoad(call, request, writer, context_.queue,
                                               context_.queue, tag);
          },
          GateOf(context_, kLoadDraftModelMethod),
          [this](const auto& request, const auto& respond) {
            respond(ListAfter(LoadDraftModel(request.model(),
                                             request.has_share() ? request.share() : kDefaultShare,
                                             MonotonicSeconds(), context_.fleet)));
          }),
      promote_(
          context_.queue, &unread_replies_,
          [this](auto* call, auto* request, auto* writer, void* tag) {
            context_.draft_models->RequestPromote(call, request, writer, context_.queue,
                                                  context_.queue, tag);
          },
          GateOf(context_, kPromoteDraftModelMethod),
          [this](const auto& /*request*/, const auto& respond) {
            respond(ListAfter(PromoteDraftModel(MonotonicSeconds(), context_.fleet)));
          }),
      roll_back_(
          context_.queue, &unread_replies_,
          [this](auto* call, auto* request, auto* writer, void* tag) {
            context_.draft_models->RequestRollBack(call, request, writer, context_.queue,
                                                   context_.queue, tag);
          },
          GateOf(context_, kRollBackDraftModelsMethod),
          [this](const auto& /*request*/, const auto& respond) {
            respond(ListAfter(RollBackDraftModels(MonotonicSeconds(), context_.fleet)));
          }),
      unload_(
          context_.queue, &unread_replies_,
          [this](auto* call, auto* request, auto* writer, void* tag) {
            context_.draft_models->RequestUnload(call, request, writer, context_.queue,
                                                 context_.queue, tag);
          },
          GateOf(context_, kUnloadDraftModelMethod),
          [this](const auto& request, const auto& respond) {
            respond(
                ListAfter(UnloadDraftModel(request.model(), MonotonicSeconds(), context_.fleet)));
          }) {}

void DraftModelCalls::Serve() {
  list_.Serve();
  load_.Serve();
  promote_.Serve();
  roll_back_.Serve();
  unload_.Serve();
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
  *list.mutable_comparison() = ComparisonOf(state.compared, state.comparison);
  return list;
}

}  // namespace tandem
