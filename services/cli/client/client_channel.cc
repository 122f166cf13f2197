#include "services/cli/client/client_channel.h"

#include <grpcpp/grpcpp.h>

#include "common/security/channel_credentials.h"
#include "common/status.h"

namespace tandem::cli {

namespace {

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, TlsFiles* tls) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // never send a loopback address to a proxy
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(address, MakeChannelCredentials(tls), arguments);
}

}  // namespace

absl::Status ToAbsl(const grpc::Status& status) {
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

ClientChannel::ClientChannel(const std::string& address, const ClientSecurity& security)
    : address_(address),
      security_(security),
      authorization_(security_.Authorization()),
      channel_(MakeChannel(address, security_.tls.get())) {}

absl::Status ClientChannel::Connect(std::chrono::milliseconds timeout) const {
  if (channel_->WaitForConnected(std::chrono::system_clock::now() + timeout)) {
    return absl::OkStatus();
  }
  return Unavailable(
      "nobody answers at " + address_ + " (is `tandem serve --listen " + address_ +
      "` running, is this the address of its line `ready:` and not that of `http:` or its admin "
      "address, and have both ends TLS or neither?)");
}

void ClientChannel::Authorize(grpc::ClientContext* context) const {
  if (!authorization_.empty()) context->AddMetadata("authorization", authorization_);
}

}  // namespace tandem::cli
