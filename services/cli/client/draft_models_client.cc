#include "services/cli/client/draft_models_client.h"

#include "common/status.h"
#include "services/cli/client/client_channel.h"
#include "tandem/v1/draft_models.grpc.pb.h"

namespace tandem::cli {

using Stub = v1::DraftModels::Stub;

struct DraftModelsClient::Impl {
  Impl(const std::string& address, const ClientSecurity& security)
      : channel(address, security), stub(v1::DraftModels::NewStub(channel.channel())) {}

  template <typename Request>
  Answer Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                           v1::DraftModelList*),
              const Request& request) {
    v1::DraftModelList list;
    TANDEM_RETURN_IF_ERROR(channel.Call(*stub, method, request, &list));
    return list;
  }

  ClientChannel channel;
  std::unique_ptr<Stub> stub;
};

DraftModelsClient::DraftModelsClient(const std::string& address, const ClientSecurity& security)
    : impl_(std::make_unique<Impl>(address, security)) {}

DraftModelsClient::~DraftModelsClient() = default;

absl::Status DraftModelsClient::Connect(std::chrono::milliseconds timeout) {
  return impl_->channel.Connect(timeout);
}

DraftModelsClient::Answer DraftModelsClient::List() {
  return impl_->Call(&Stub::List, v1::ListDraftModelsRequest());
}

DraftModelsClient::Answer DraftModelsClient::Load(const std::string& model, double share) {
  v1::LoadDraftModelRequest request;
  request.set_model(model);
  request.set_share(share);
  return impl_->Call(&Stub::Load, request);
}

DraftModelsClient::Answer DraftModelsClient::Promote() {
  return impl_->Call(&Stub::Promote, v1::PromoteDraftModelRequest());
}

DraftModelsClient::Answer DraftModelsClient::RollBack() {
  return impl_->Call(&Stub::RollBack, v1::RollBackDraftModelsRequest());
}

DraftModelsClient::Answer DraftModelsClient::Unload(const std::string& model) {
  v1::UnloadDraftModelRequest request;
  request.set_model(model);
  return impl_->Call(&Stub::Unload, request);
}

DraftModelsClient::Answer DraftModelsClient::SwapHeads(const std::string& heads) {
  v1::SwapHeadsRequest request;
  request.set_heads(heads);
  return impl_->Call(&Stub::SwapHeads, request);
}

DraftModelsClient::Answer DraftModelsClient::RollBackHeads(const std::string& swapped) {
  v1::RollBackHeadsRequest request;
  request.set_heads(swapped);
  return impl_->Call(&Stub::RollBackHeads, request);
}

}  // namespace tandem::cli
