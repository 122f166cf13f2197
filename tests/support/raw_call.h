// Makes a unary gRPC call to any method with an empty message, without generated code.
#ifndef TANDEM_TESTS_SUPPORT_RAW_CALL_H_
#define TANDEM_TESTS_SUPPORT_RAW_CALL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <memory>
#include <string>

namespace tandem::testing {

// `response` may be null. It is set if the status is OK.
inline grpc::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel,
                            const std::string& method, grpc::ClientContext* context,
                            grpc::ByteBuffer* response = nullptr) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  const grpc::ByteBuffer request(nullptr, 0);
  grpc::ByteBuffer unread;
  const auto call = stub.PrepareUnaryCall(context, method, request, &queue);
  call->StartCall();
  grpc::Status status;
  call->Finish(response != nullptr ? response : &unread, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  return status;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_RAW_CALL_H_
