// One call of Generate, as seen from a connection's strand.
#ifndef TANDEM_SERVICES_GATEWAY_CALLS_GENERATE_STREAM_H_
#define TANDEM_SERVICES_GATEWAY_CALLS_GENERATE_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <boost/asio/any_io_executor.hpp>
#include <cstddef>
#include <functional>
#include <memory>

#include "services/gateway/api/answers/error_shape.h"
#include "tandem/v1/generate.grpc.pb.h"

namespace tandem::gateway {

// Called on the strand.
class StreamListener {
 public:
  virtual ~StreamListener() = default;

  // The next message comes after Next.
  virtual void OnMessage(size_t choice, const v1::GenerateResponse& message) = 0;
  // The last call.
  virtual void OnEnd(size_t choice, const CallEnd& end) = 0;
};

// gRPC's threads call the reactor's functions, and these post to the strand. So every member is
// used by one side at a time: by gRPC while a read is under way, and by the strand otherwise. The
// stream keeps itself and the strand's io_context alive until it has ended.
class GenerateStream final : public grpc::ClientReadReactor<v1::GenerateResponse>,
                             public std::enable_shared_from_this<GenerateStream> {
 public:
  // `on_end` is called when the call has ended, after the listener.
  GenerateStream(const boost::asio::any_io_executor& strand, size_t choice,
                 std::shared_ptr<StreamListener> listener, std::function<void()> on_end);

  grpc::ClientContext* context() { return &context_; }
  // Called once. The first message comes without Next.
  void Start(v1::Generation::Stub& stub, const v1::GenerateRequest& request);
  // Asks for the next message. PRECOND: a message has come since the last call, or OnEnd has.
  void Next();
  // The listener gets no more messages, and its OnEnd soon.
  void Cancel();

 private:
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  void AfterRead(bool ok);
  void AfterDone(const grpc::Status& status);
  void Release();

  const boost::asio::any_io_executor strand_;
  const size_t choice_;
  std::shared_ptr<StreamListener> listener_;
  std::function<void()> on_end_;
  grpc::ClientContext context_;
  v1::GenerateResponse message_;
  std::shared_ptr<GenerateStream> self_;  // set until the end
  bool is_reading_ = false;
  bool is_held_ = false;
  bool is_canceled_ = false;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_CALLS_GENERATE_STREAM_H_
