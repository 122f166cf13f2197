// The gRPC methods of v1.DraftModels, by which operators swap draft models and heads.
#ifndef TANDEM_SERVICES_ROUTER_CLIENT_CALLS_DRAFT_MODEL_CALLS_H_
#define TANDEM_SERVICES_ROUTER_CLIENT_CALLS_DRAFT_MODEL_CALLS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/router/client_calls/call_context.h"
#include "services/router/client_calls/unary_method.h"
#include "tandem/v1/draft_models.grpc.pb.h"

namespace tandem {

// Everything runs on the thread that polls the completion queue. The object must outlive the
// queue's last event.
class DraftModelCalls {
 public:
  explicit DraftModelCalls(const CallContext& context);

  // Begins to take calls of all methods.
  void Serve();

 private:
  template <typename Request>
  using Method = UnaryMethod<Request, v1::DraftModelList>;

  // Returns a method that makes a change and answers with ListAfter. `take` is the function of the
  // service that takes a call, and `change` gets the request.
  template <typename Request, typename Take, typename Change>
  Method<Request> MethodOf(const char* name, Take take, Change change);
  // The models as they are after a change. An error is returned as it is.
  absl::StatusOr<v1::DraftModelList> ListAfter(const absl::Status& change) const;

  const CallContext context_;
  ReplyBudget unread_replies_;
  Method<v1::ListDraftModelsRequest> list_;
  Method<v1::LoadDraftModelRequest> load_;
  Method<v1::PromoteDraftModelRequest> promote_;
  Method<v1::RollBackDraftModelsRequest> roll_back_;
  Method<v1::UnloadDraftModelRequest> unload_;
  Method<v1::SwapHeadsRequest> swap_heads_;
  Method<v1::RollBackHeadsRequest> roll_back_heads_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_CLIENT_CALLS_DRAFT_MODEL_CALLS_H_
