// The client's end of a bidirectional gRPC stream, on a completion queue.
#ifndef TANDEM_COMMON_RPC_CLIENT_STREAM_H_
#define TANDEM_COMMON_RPC_CLIENT_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/async_stream.h>

#include <functional>
#include <memory>
#include <utility>

#include "common/rpc/async_tag.h"
#include "common/rpc/write_queue.h"

namespace tandem {

// One call, used once. Everything here, callbacks included, runs on the one thread that polls the
// completion queue.
//
//   ClientStream<VerifierCommand, VerifierReply> stream(on_message, on_closed);
//   stream.Start([&](grpc::ClientContext* context) { return stub->PrepareAsyncSession(context,
//   &queue); }); stream.Write(command);   // at once; queued until the call is up and the message
//   before it is written
//
// `on_message` is called for every message of the server and may move from it. `on_closed` is
// called once, with the call's status, after everything else: the stream may be destroyed in it,
// and not before (unless never started).
template <typename Request, typename Reply>
class ClientStream {
 public:
  using Call = grpc::ClientAsyncReaderWriter<Request, Reply>;
  using CallFactory = std::function<std::unique_ptr<Call>(grpc::ClientContext*)>;
  using OnMessage = std::function<void(Reply&)>;
  using OnClosed = std::function<void(const grpc::Status&)>;

  ClientStream(OnMessage on_message, OnClosed on_closed)
      : on_message_(std::move(on_message)), on_closed_(std::move(on_closed)) {}
  ClientStream(const ClientStream&) = delete;
  ClientStream& operator=(const ClientStream&) = delete;

  // For deadlines, metadata, wait_for_ready; before Start.
  grpc::ClientContext& context() { return context_; }

  // `factory` prepares the call on the queue: stub->PrepareAsyncMETHOD(context, queue).
  void Start(const CallFactory& factory) {
    call_ = factory(&context_);
    under_way_ = 1;
    call_->StartCall(start_tag_.get());
  }

  // Does nothing once the stream is closing: `on_closed` says so.
  void Write(Request request) {
    if (closing_ || half_close_wanted_) return;
    queue_.Push(std::move(request));
    WriteNext();
  }

  // Tells the server that nothing follows what was written so far. A server that is done then
  // closes with its status.
  void CloseWrites() {
    half_close_wanted_ = true;
    WriteNext();
  }

  // Ends the call now; `on_closed` follows with CANCELLED.
  void Cancel() { context_.TryCancel(); }

  // Messages written but not yet taken by gRPC.
  size_t queued_writes() const { return queue_.size(); }

 private:
  void OnStarted(bool ok) {
    --under_way_;
    if (!ok) return Finish();
    started_ = true;
    Read();
    WriteNext();
  }

  void Read() {
    ++under_way_;
    call_->Read(&reply_, read_tag_.get());
  }

  void OnRead(bool ok) {
    --under_way_;
    if (!ok) return Finish();
    on_message_(reply_);
    Read();
  }

  void WriteNext() {
    if (!started_ || closing_) return;
    if (const Request* request = queue_.Begin(); request != nullptr) {
      ++under_way_;
      call_->Write(*request, write_tag_.get());
    } else if (half_close_wanted_ && !half_closed_ && queue_.size() == 0) {
      half_closed_ = true;
      ++under_way_;
      call_->WritesDone(half_close_tag_.get());
    }
  }

  void OnWritten(bool ok) {
    --under_way_;
    queue_.End();
    // After a failure the call is over and the read fails too, which finishes it.
    if (ok) {
      WriteNext();
    } else {
      queue_.Clear();
    }
    CloseIfQuiet();
  }

  void OnHalfClosed(bool /*ok*/) {
    --under_way_;
    CloseIfQuiet();
  }

  // No more messages will come: asks for the status.
  void Finish() {
    closing_ = true;
    queue_.Clear();
    ++under_way_;
    call_->Finish(&status_, finish_tag_.get());
  }

  void OnFinished(bool /*ok*/) {
    --under_way_;
    finished_ = true;
    CloseIfQuiet();
  }

  // A write may still be under way when the status comes; its tag must be back before the stream
  // may go.
  void CloseIfQuiet() {
    if (!finished_ || under_way_ != 0) return;
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
  int under_way_ = 0;  // tags that gRPC holds
  bool started_ = false;
  bool closing_ = false;
  bool finished_ = false;
  bool half_close_wanted_ = false;
  bool half_closed_ = false;
  MemberTag<ClientStream> start_tag_{this, &ClientStream::OnStarted};
  MemberTag<ClientStream> read_tag_{this, &ClientStream::OnRead};
  MemberTag<ClientStream> write_tag_{this, &ClientStream::OnWritten};
  MemberTag<ClientStream> half_close_tag_{this, &ClientStream::OnHalfClosed};
  MemberTag<ClientStream> finish_tag_{this, &ClientStream::OnFinished};
};

}  // namespace tandem

#endif  // TANDEM_COMMON_RPC_CLIENT_STREAM_H_
