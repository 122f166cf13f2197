// A connection to a server's gRPC API.
#ifndef TANDEM_SERVICES_CLI_CLIENT_CLIENT_CHANNEL_H_
#define TANDEM_SERVICES_CLI_CLIENT_CLIENT_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "services/cli/client/client_security.h"

namespace tandem::cli {

absl::Status ToAbsl(const grpc::Status& status);

class ClientChannel {
 public:
  // "HOST:PORT" or "unix:PATH". Does not connect yet.
  ClientChannel(const std::string& address, const ClientSecurity& security);

  // UNAVAILABLE: nobody answered in time.
  absl::Status Connect(std::chrono::milliseconds timeout) const;
  // Adds the token to the metadata of a call, if there is one.
  void Authorize(grpc::ClientContext* context) const;

  // Makes a unary call by a method of a stub.
  template <typename Stub, typename Request, typename Response>
  absl::Status Call(Stub& stub,
                    grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response) const {
    constexpr std::chrono::seconds kDeadline{30};
    grpc::ClientContext context;
    Authorize(&context);
    context.set_deadline(std::chrono::system_clock::now() + kDeadline);
    return ToAbsl((stub.*method)(&context, request, response));
  }

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  const std::string& address() const { return address_; }
  const ClientSecurity& security() const { return security_; }

 private:
  std::string address_;
  ClientSecurity security_;
  std::string authorization_;  // metadata of every call; empty: none
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_CLIENT_CLIENT_CHANNEL_H_
