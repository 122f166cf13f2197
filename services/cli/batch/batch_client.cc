#include "services/cli/batch/batch_client.h"

#include <grpcpp/grpcpp.h>

#include <charconv>
#include <mutex>
#include <set>

#include "services/cli/client/client_channel.h"
#include "tandem/v1/generate.grpc.pb.h"

namespace tandem::cli {

struct BatchClient::Impl {
  Impl(const std::string& address, const ClientSecurity& security)
      : channel(address, security), stub(v1::Generation::NewStub(channel.channel())) {}

  ClientChannel channel;
  std::unique_ptr<v1::Generation::Stub> stub;

  std::mutex mutex;
  std::set<grpc::ClientContext*> running;  // guarded by mutex
  bool is_canceled = false;                // guarded by mutex
};

BatchClient::BatchClient(const std::string& address, const ClientSecurity& security)
    : impl_(std::make_unique<Impl>(address, security)) {}

BatchClient::~BatchClient() = default;

gateway::CallEnd BatchClient::Generate(const v1::GenerateRequest& request,
                                       const std::string& tenant, const OnMessage& on_message) {
  grpc::ClientContext context;
  impl_->channel.Authorize(&context);
  if (!tenant.empty()) context.AddMetadata("tandem-tenant", tenant);
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->is_canceled) return {.status = absl::CancelledError("canceled")};
    impl_->running.insert(&context);
  }
  const auto reader = impl_->stub->Generate(&context, request);
  v1::GenerateResponse message;
  while (reader->Read(&message)) on_message(message);
  const grpc::Status status = reader->Finish();
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->running.erase(&context);
  }
  gateway::CallEnd end{.status = ToAbsl(status)};
  if (status.ok()) return end;
  const auto& trailing = context.GetServerTrailingMetadata();
  // The router says this at the end of every Generate that fails.
  end.is_from_router = trailing.contains("tandem-emitted-tokens");
  if (const auto found = trailing.find("grpc-retry-pushback-ms"); found != trailing.end()) {
    int milliseconds = 0;
    const char* const begin = found->second.data();
    const auto parsed = std::from_chars(begin, begin + found->second.size(), milliseconds);
    if (parsed.ec == std::errc() && milliseconds > 0) end.retry_milliseconds = milliseconds;
  }
  return end;
}

void BatchClient::Cancel() {
  const std::lock_guard lock(impl_->mutex);
  impl_->is_canceled = true;
  for (grpc::ClientContext* context : impl_->running) context->TryCancel();
}

}  // namespace tandem::cli
