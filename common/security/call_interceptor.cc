#include "common/security/call_interceptor.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_interceptor.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "common/status.h"

namespace tandem {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerInterceptorFactoryInterface;
using grpc::experimental::ServerRpcInfo;

std::string_view ViewOf(const grpc::string_ref& text) { return {text.data(), text.size()}; }

class CheckedCall final : public Interceptor {
 public:
  CheckedCall(ServerRpcInfo* info, const CallCheck* check) : info_(info), check_(check) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      status_ = (*check_)(info_->method(), *info_->server_context());
    }
    if (!status_.ok()) Refuse(methods);
    methods->Proceed();
  }

 private:
  void Refuse(InterceptorBatchMethods* methods) const {
    // If the method has no handler, gRPC ends the call without a message. The handler of a stream
    // could wait for a message for ever.
    if (info_->type() != ServerRpcInfo::Type::UNARY && IsAboutMessage(methods)) {
      info_->server_context()->TryCancel();
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE)) {
      const grpc::Slice nothing;
      *methods->GetSerializedSendMessage() = grpc::ByteBuffer(&nothing, 1);
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      methods->ModifySendStatus(
          {static_cast<grpc::StatusCode>(status_.code()), std::string(status_.message())});
    }
  }

  static bool IsAboutMessage(InterceptorBatchMethods* methods) {
    return methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_RECV_MESSAGE) ||
           methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE) ||
           methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE);
  }

  ServerRpcInfo* info_;
  const CallCheck* check_;
  absl::Status status_;
};

class CheckedCalls final : public ServerInterceptorFactoryInterface {
 public:
  CheckedCalls(CallCheck check, std::vector<std::string> without)
      : check_(std::move(check)), without_(without.begin(), without.end()) {}

  Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    if (without_.contains(std::string_view(info->method()))) return nullptr;
    return new CheckedCall(info, &check_);
  }

 private:
  const CallCheck check_;
  const std::set<std::string, std::less<>> without_;
};

}  // namespace

void InterceptCalls(grpc::ServerBuilder& builder, CallCheck check,
                    std::vector<std::string> without) {
  std::vector<std::unique_ptr<ServerInterceptorFactoryInterface>> factories;
  factories.push_back(std::make_unique<CheckedCalls>(std::move(check), std::move(without)));
  builder.experimental().SetInterceptorCreators(std::move(factories));
}

absl::Status CheckCall(CallGate& gate, std::string_view method,
                       const grpc::ServerContextBase& context) {
  std::vector<std::string_view> authorization;
  const auto [begin, end] = context.client_metadata().equal_range("authorization");
  for (auto value = begin; value != end; ++value) authorization.push_back(ViewOf(value->second));
  return gate.Check(method, authorization);
}

absl::Status CheckClientName(const std::string& name, const grpc::ServerContextBase& context) {
  const auto peer = context.auth_context();
  const auto names = peer->FindPropertyValues(GRPC_X509_SAN_PROPERTY_NAME);
  if (std::any_of(names.begin(), names.end(),
                  [&](const grpc::string_ref& of_peer) { return ViewOf(of_peer) == name; })) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError("the certificate that was shown is not for --client-name " +
                                     name);
}

}  // namespace tandem
