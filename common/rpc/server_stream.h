// The server's end of a bidirectional gRPC stream, on a completion queue.
#ifndef TANDEM_COMMON_RPC_SERVER_STREAM_H_
#define TANDEM_COMMON_RPC_SERVER_STREAM_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>

#include <cstddef>
#include <functional>
#include <utility>

#include "common/rpc/call_lifetime.h"
#include "common/rpc/write_queue.h"

namespace tandem {

// One call: waits for a client, then serves it. Everything runs on the one thread that polls the
// completion queue.
//
// `on_open` is called when a client has come. It makes the ServerStream for the next client.
// `on_message` is called for every message, and answers with Write. `on_closed` is called once,
// after everything else. A stream that waits for a client may be destroyed in `on_closed`, and not
// before. `opened` is false if the server shut down before any client came.
//
// Memory is bounded: while `kMaxQueuedWrites` replies wait for a client that does not read, nothing
// more is read from that client.
template <typename Request, typename Reply>
class ServerStream final : public CallLifetime {
 public:
  using Call = grpc::ServerAsyncReaderWriter<Reply, Request>;
  // Asks gRPC for a call: service->RequestMETHOD(context, call, queue, queue, tag).
  using CallRequest = std::function<void(grpc::ServerContext*, Call*, void* tag)>;
  using OnOpen = std::function<void()>;
  using OnMessage = std::function<void(const Request&)>;
  using OnClosed = std::function<void(bool opened)>;
  static constexpr size_t kMaxQueuedWrites = 64;

  ServerStream(OnOpen on_open, OnMessage on_message, OnClosed on_closed)
      : on_open_(std::move(on_open)),
        on_message_(std::move(on_message)),
        on_closed_(std::move(on_closed)) {}

  void WaitForClient(const CallRequest& request) { request(&context_, &call_, open_.Begin()); }

  void Write(Reply reply) {
    if (finishing_) return;
    queue_.Push(std::move(reply));
    WriteNext();
  }

  // Ends an open call now, for a client that may be gone. `on_closed` follows. Any thread may call
  // this function.
  void Cancel() { context_.TryCancel(); }

  // Ends the call after the replies written so far. Messages that still arrive are dropped.
  void Close(grpc::Status status) {
    if (close_wanted_) return;
    close_wanted_ = true;
    status_ = std::move(status);
    WriteNext();
  }

 private:
  void OnOpened(bool ok) {
    if (!ok) return End();
    opened_ = true;
    on_open_();
    Read();
  }

  void Read() { call_.Read(&request_, read_.Begin()); }

  void OnRead(bool ok) {
    // The client has finished or is gone. The replies that wait for it are written first.
    if (!ok) return Close(grpc::Status::OK);
    if (!close_wanted_) on_message_(request_);
    if (finishing_) return;
    if (queue_.size() < kMaxQueuedWrites) {
      Read();
    } else {
      read_deferred_ = true;
    }
  }

  void WriteNext() {
    if (finishing_) return;
    if (const Reply* reply = queue_.Begin(); reply != nullptr) {
      call_.Write(*reply, write_.Begin());
    } else if (close_wanted_ && queue_.size() == 0) {
      Finish();
    }
  }

  void OnWritten(bool ok) {
    queue_.End();
    if (!ok) {
      queue_.Clear();
      Close(grpc::Status::OK);
    }
    WriteNext();
    if (read_deferred_ && !finishing_ && queue_.size() < kMaxQueuedWrites) {
      read_deferred_ = false;
      Read();
    }
  }

  void Finish() {
    finishing_ = true;
    call_.Finish(status_, finish_.Begin());
  }

  void OnFinished(bool /*ok*/) { End(); }

  void OnQuiet() override {
    const OnClosed on_closed = std::move(on_closed_);
    on_closed(opened_);  // may destroy this
  }

  OnOpen on_open_;
  OnMessage on_message_;
  OnClosed on_closed_;
  grpc::ServerContext context_;
  Call call_{&context_};
  Request request_;
  grpc::Status status_;
  WriteQueue<Reply> queue_;
  bool opened_ = false;
  bool read_deferred_ = false;
  bool close_wanted_ = false;
  bool finishing_ = false;
  Operation<ServerStream> open_{this, &ServerStream::OnOpened};
  Operation<ServerStream> read_{this, &ServerStream::OnRead};
  Operation<ServerStream> write_{this, &ServerStream::OnWritten};
  Operation<ServerStream> finish_{this, &ServerStream::OnFinished};
};

}  // namespace tandem

#endif  // TANDEM_COMMON_RPC_SERVER_STREAM_H_
