// A call of Generate with a stream of its own.
#ifndef TANDEM_SERVICES_GATEWAY_CALLS_OWN_STREAM_H_
#define TANDEM_SERVICES_GATEWAY_CALLS_OWN_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/async_stream.h>

#include <boost/asio/any_io_executor.hpp>
#include <cstddef>
#include <functional>
#include <memory>

#include "common/rpc/async_tag.h"
#include "services/gateway/calls/call_queue.h"
#include "services/gateway/calls/generate_stream.h"
#include "tandem/v1/generate.grpc.pb.h"

namespace tandem::gateway {

// The queue's thread hands over to the strand, which does the rest. So every member is used by one
// side at a time. The stream keeps itself alive until it has ended.
class OwnStream final : public GenerateStream, public std::enable_shared_from_this<OwnStream> {
 public:
  // `on_end` is called when the call has ended, after the listener. `queue` outlives the stream.
  OwnStream(const boost::asio::any_io_executor& strand, size_t choice,
            std::shared_ptr<StreamListener> listener, CallQueue* queue,
            std::function<void()> on_end);

  grpc::ClientContext* context() { return &context_; }
  // Called once.
  void Start(v1::Generation::Stub& stub, const v1::GenerateRequest& request);
  void Next() override;
  void Cancel() override;

 private:
  // Called by the queue.
  void OnStarted(bool ok);
  void OnRead(bool ok);
  void OnFinished(bool ok);
  // Called on the strand.
  void AfterStart(bool ok);
  void AfterRead(bool ok);
  void AfterEnd();

  void Read();
  // Asks for the status. No more messages come.
  void Finish();

  const boost::asio::any_io_executor strand_;
  const size_t choice_;
  std::shared_ptr<StreamListener> listener_;
  CallQueue* const queue_;
  std::function<void()> on_end_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientAsyncReader<v1::GenerateResponse>> reader_;
  v1::GenerateResponse message_;
  grpc::Status status_;
  MemberTag<OwnStream> start_{this, &OwnStream::OnStarted};
  MemberTag<OwnStream> read_{this, &OwnStream::OnRead};
  MemberTag<OwnStream> finish_{this, &OwnStream::OnFinished};
  std::shared_ptr<OwnStream> self_;  // set until the end
  bool is_busy_ = false;             // the queue has an operation, or will never have another one
  bool is_canceled_ = false;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_CALLS_OWN_STREAM_H_
