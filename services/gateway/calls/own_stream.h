// A call of Generate with a stream of its own.
#ifndef TANDEM_SERVICES_GATEWAY_CALLS_OWN_STREAM_H_
#define TANDEM_SERVICES_GATEWAY_CALLS_OWN_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <boost/asio/any_io_executor.hpp>
#include <cstddef>
#include <functional>
#include <memory>

#include "services/gateway/calls/generate_stream.h"
#include "tandem/v1/generate.grpc.pb.h"

namespace tandem::gateway {

// gRPC's threads call the reactor's functions, and these post to the strand. So every member is
// used by one side at a time: by gRPC while a read is under way, and by the strand otherwise. The
// stream keeps itself and the strand's io_context alive until it has ended.
class OwnStream final : public GenerateStream,
                        public grpc::ClientReadReactor<v1::GenerateResponse>,
                        public std::enable_shared_from_this<OwnStream> {
 public:
  // `on_end` is called when the call has ended, after the listener.
  OwnStream(const boost::asio::any_io_executor& strand, size_t choice,
            std::shared_ptr<StreamListener> listener, std::function<void()> on_end);

  grpc::ClientContext* context() { return &context_; }
  // Called once.
  void Start(v1::Generation::Stub& stub, const v1::GenerateRequest& request);
  void Next() override;
  void Cancel() override;

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
  std::shared_ptr<OwnStream> self_;  // set until the end
  bool is_reading_ = false;
  bool is_held_ = false;
  bool is_canceled_ = false;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_CALLS_OWN_STREAM_H_
