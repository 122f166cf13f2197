// The server's end of a bidirectional gRPC stream, on a completion queue.
#ifndef TANDEM_COMMON_RPC_SERVER_STREAM_H_
#define TANDEM_COMMON_RPC_SERVER_STREAM_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>

#include <cstddef>
#include <functional>
#include <utility>

#include "common/rpc/async_tag.h"
#include "common/rpc/write_queue.h"

namespace tandem {

// One call: waits for a client, then serves it. Everything runs on the one thread that polls the
// completion queue.
//
// `on_open` is called when a client has come (make the next ServerStream there, for the next
// client). `on_message` is called for every message, and answers with Write. `on_closed` is called
// once, after everything else: the stream may be destroyed in it, and not before. `opened` is false
// when the server shut down before any client came.
//
// Memory is bounded: while `kMaxQueuedWrites` replies wait for a client that does not read, nothing
// more is read from it.
template <typename Request, typename Reply>
class ServerStream {
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
  ServerStream(const ServerStream&) = delete;
  ServerStream& operator=(const ServerStream&) = delete;

  void WaitForClient(const CallRequest& request) {
    ++under_way_;
    request(&context_, &call_, open_tag_.get());
  }

  void Write(Reply reply) {
    if (finishing_) return;
    queue_.Push(std::move(reply));
    WriteNext();
  }

  // Ends an open call now, for a client that may not be there any more; `on_closed` follows. By any
  // thread.
  void Cancel() { context_.TryCancel(); }

  // Ends the call after what was written so far; messages that still come are dropped.
  void Close(grpc::Status status) {
    if (close_wanted_) return;
    close_wanted_ = true;
    status_ = std::move(status);
    WriteNext();
  }

 private:
  void OnOpened(bool ok) {
    --under_way_;
    if (!ok) {
      finished_ = true;
      return CloseIfQuiet();
    }
    opened_ = true;
    on_open_();
    Read();
  }

  void Read() {
    ++under_way_;
    call_.Read(&request_, read_tag_.get());
  }

  void OnRead(bool ok) {
    --under_way_;
    if (!ok) {
      // The client is done or gone; what it still waits for is written first.
      Close(grpc::Status::OK);
      return CloseIfQuiet();
    }
    if (!close_wanted_) on_message_(request_);
    if (finishing_) return CloseIfQuiet();
    if (queue_.size() < kMaxQueuedWrites) {
      Read();
    } else {
      read_deferred_ = true;
    }
  }

  void WriteNext() {
    if (finishing_) return;
    if (const Reply* reply = queue_.Begin(); reply != nullptr) {
      ++under_way_;
      call_.Write(*reply, write_tag_.get());
    } else if (close_wanted_ && queue_.size() == 0) {
      Finish();
    }
  }

  void OnWritten(bool ok) {
    --under_way_;
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
    CloseIfQuiet();
  }

  void Finish() {
    finishing_ = true;
    ++under_way_;
    call_.Finish(status_, finish_tag_.get());
  }

  void OnFinished(bool /*ok*/) {
    --under_way_;
    finished_ = true;
    CloseIfQuiet();
  }

  void CloseIfQuiet() {
    if (!finished_ || under_way_ != 0) return;
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
  int under_way_ = 0;  // tags that gRPC holds
  bool opened_ = false;
  bool read_deferred_ = false;
  bool close_wanted_ = false;
  bool finishing_ = false;
  bool finished_ = false;
  MemberTag<ServerStream> open_tag_{this, &ServerStream::OnOpened};
  MemberTag<ServerStream> read_tag_{this, &ServerStream::OnRead};
  MemberTag<ServerStream> write_tag_{this, &ServerStream::OnWritten};
  MemberTag<ServerStream> finish_tag_{this, &ServerStream::OnFinished};
};

}  // namespace tandem

#endif  // TANDEM_COMMON_RPC_SERVER_STREAM_H_
