#include "services/cli/client/generation_client.h"

#include <grpcpp/grpcpp.h>

#include <mutex>
#include <utility>

#include "common/status.h"
#include "services/cli/client/client_channel.h"
#include "tandem/v1/generate.grpc.pb.h"

namespace tandem::cli {

struct GenerationClient::Impl {
  Impl(const std::string& address, const ClientSecurity& security)
      : channel(address, security), stub(v1::Generation::NewStub(channel.channel())) {}

  template <typename Request, typename Response>
  absl::Status Call(grpc::Status (v1::Generation::Stub::*method)(grpc::ClientContext*,
                                                                 const Request&, Response*),
                    const Request& request, Response* response) {
    return channel.Call(*stub, method, request, response);
  }

  ClientChannel channel;
  std::unique_ptr<v1::Generation::Stub> stub;

  std::mutex mutex;
  grpc::ClientContext* running = nullptr;  // guarded by mutex
  bool canceled = false;                   // guarded by mutex
};

GenerationClient::GenerationClient(const std::string& address, const ClientSecurity& security)
    : impl_(std::make_unique<Impl>(address, security)) {}

GenerationClient::~GenerationClient() = default;

absl::Status GenerationClient::Connect(std::chrono::milliseconds timeout) {
  return impl_->channel.Connect(timeout);
}

absl::StatusOr<v1::GenerateResponse> GenerationClient::Generate(const v1::GenerateRequest& request,
                                                                const OnMessage& on_message) {
  grpc::ClientContext context;
  impl_->channel.Authorize(&context);
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->canceled) return absl::CancelledError("canceled");
    impl_->running = &context;
  }
  const auto reader = impl_->stub->Generate(&context, request);
  v1::GenerateResponse all;
  v1::GenerateResponse message;
  std::string text;
  while (reader->Read(&message)) {
    if (!on_message(message)) context.TryCancel();
    text += message.text();
    all.MergeFrom(message);
  }
  const grpc::Status status = reader->Finish();
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->running = nullptr;
  }
  if (!status.ok()) return ToAbsl(status);
  if (!all.has_completion()) {
    return Internal("the stream ended with OK but without a completion");
  }
  all.set_text(text);
  return all;
}

absl::StatusOr<std::vector<int32_t>> GenerationClient::Tokenize(const std::string& text,
                                                                bool add_special_tokens) {
  v1::TokenizeRequest request;
  request.set_text(text);
  request.set_add_special_tokens(add_special_tokens);
  v1::TokenizeResponse response;
  TANDEM_RETURN_IF_ERROR(impl_->Call(&v1::Generation::Stub::Tokenize, request, &response));
  return std::vector<int32_t>(response.ids().begin(), response.ids().end());
}

absl::StatusOr<v1::TokenizeResponse> GenerationClient::Render(const v1::Chat& chat) {
  v1::TokenizeRequest request;
  *request.mutable_chat() = chat;
  v1::TokenizeResponse response;
  TANDEM_RETURN_IF_ERROR(impl_->Call(&v1::Generation::Stub::Tokenize, request, &response));
  return response;
}

absl::StatusOr<std::string> GenerationClient::Detokenize(const std::vector<int32_t>& ids,
                                                         bool skip_special_tokens) {
  v1::DetokenizeRequest request;
  request.mutable_ids()->Add(ids.begin(), ids.end());
  request.set_skip_special_tokens(skip_special_tokens);
  v1::DetokenizeResponse response;
  TANDEM_RETURN_IF_ERROR(impl_->Call(&v1::Generation::Stub::Detokenize, request, &response));
  return std::move(*response.mutable_text());
}

absl::StatusOr<v1::ServerInfo> GenerationClient::GetServerInfo() {
  v1::ServerInfo info;
  TANDEM_RETURN_IF_ERROR(
      impl_->Call(&v1::Generation::Stub::GetServerInfo, v1::GetServerInfoRequest(), &info));
  return info;
}

void GenerationClient::Cancel() {
  const std::lock_guard lock(impl_->mutex);
  impl_->canceled = true;
  if (impl_->running != nullptr) impl_->running->TryCancel();
}

void GenerationClient::CancelRunning() {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->running != nullptr) impl_->running->TryCancel();
}

bool GenerationClient::canceled() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->canceled;
}

const std::string& GenerationClient::address() const { return impl_->channel.address(); }
const ClientSecurity& GenerationClient::security() const { return impl_->channel.security(); }

}  // namespace tandem::cli
