// The client's end of a bidirectional gRPC stream, on a completion queue.
#ifndef TANDEM_COMMON_RPC_CLIENT_STREAM_H_
#define TANDEM_COMMON_RPC_CLIENT_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/async_stream.h>

#include <functional>
#include <memory>
#include <utility>

#include "common/rpc/call_lifetime.h"
#include "common/rpc/write_queue.h"

namespace tandem {

// One call, used once. Everything here, callbacks included, runs on the one thread that polls the
// completion queue.
//
//   ClientStream<VerifierCommand, VerifierReply> stream(on_message, on_closed);
//   stream.Start([&](grpc::ClientContext* context) {
//     return stub->PrepareAsyncSession(context, &queue);
//   });
//   stream.Write(command);
//
// A message may be written at once. It is queued until the call is up and the message before it is
// written. `on_message` is called for every message of the server and may move from it. `on_closed`
// is called once, with the call's status, after everything else. A stream that was started may be
// destroyed in `on_closed`, and not before.
template <typename Request, typename Reply>
class ClientStream final : public CallLifetime {
 public:
  using Call = grpc::ClientAsyncReaderWriter<Request, Reply>;
  using CallFactory = std::function<std::unique_ptr<Call>(grpc::ClientContext*)>;
  using OnMessage = std::function<void(Reply&)>;
  using OnClosed = std::function<void(const grpc::Status&)>;

  ClientStream(OnMessage on_message, OnClosed on_closed)
      : on_message_(std::move(on_message)), on_closed_(std::move(on_closed)) {}

  // For deadlines, metadata and wait_for_ready. Use it before Start.
  grpc::ClientContext& context() { return context_; }

  // `factory` prepares the call on the queue: stub->PrepareAsyncMETHOD(context, queue).
  void Start(const CallFactory& factory) {
    call_ = factory(&context_);
    call_->StartCall(start_.Begin());
  }

  // Does nothing if the stream is closing; `on_closed` reports that.
  void Write(Request request) {
    if (closing_) return;
    queue_.Push(std::move(request));
    WriteNext();
  }

  // Ends the call now. `on_closed` follows with CANCELLED.
  void Cancel() { context_.TryCancel(); }

 private:
  void OnStarted(bool ok) {
    if (!ok) return Finish();
    started_ = true;
    Read();
    WriteNext();
  }

  void Read() { call_->Read(&reply_, read_.Begin()); }

  void OnRead(bool ok) {
    if (!ok) return Finish();
    on_message_(reply_);
    Read();
  }

  void WriteNext() {
    if (!started_ || closing_) return;
    if (const Request* request = queue_.Begin(); request != nullptr) {
      call_->Write(*request, write_.Begin());
    }
  }

  void OnWritten(bool ok) {
    queue_.End();
    // After a failure the call is over. The read then fails too, and finishes the call.
    if (ok) {
      WriteNext();
    } else {
      queue_.Clear();
    }
  }

  // No more messages will come. Asks for the status.
  void Finish() {
    closing_ = true;
    queue_.Clear();
    call_->Finish(&status_, finish_.Begin());
  }

  void OnFinished(bool /*ok*/) { End(); }

  void OnQuiet() override {
    const OnClosed on_closed = std::move(on_closed_);
    const grpc::Status status = status_;
    on_closed(status);  // may destroy this
  }

  OnMessage on_message_;
  OnClosed on_closed_;
  grpc::ClientContext context_;
  std::unique_ptr<Call> call_;
  Reply reply_;
  grpc::Status status_;
  WriteQueue<Request> queue_;
  bool started_ = false;
  bool closing_ = false;
  Operation<ClientStream> start_{this, &ClientStream::OnStarted};
  Operation<ClientStream> read_{this, &ClientStream::OnRead};
  Operation<ClientStream> write_{this, &ClientStream::OnWritten};
  Operation<ClientStream> finish_{this, &ClientStream::OnFinished};
};

}  // namespace tandem

#endif  // TANDEM_COMMON_RPC_CLIENT_STREAM_H_
