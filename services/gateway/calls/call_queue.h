// The thread that waits for the router.
#ifndef TANDEM_SERVICES_GATEWAY_CALLS_CALL_QUEUE_H_
#define TANDEM_SERVICES_GATEWAY_CALLS_CALL_QUEUE_H_

#include <grpcpp/completion_queue.h>

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <mutex>

namespace tandem::gateway {

// Thread-safe. All calls to the router have one completion queue, and one of the threads that run
// the io_context waits for it. gRPC then has no threads of its own that wake each other. And what
// comes is handled on a thread that can enter a connection's strand at once, so that a message of
// the router reaches its connections without a change of threads.
class CallQueue {
 public:
  // One more thread than without the queue must run `io`, which outlives the queue. `io` is at work
  // until the queue has been closed.
  explicit CallQueue(boost::asio::io_context& io);
  // PRECOND: `io` is not run any more.
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // The tags are of the type AsyncTag (common/rpc/async_tag.h).
  grpc::CompletionQueue* get() { return &queue_; }

  // A call begins, and has ended: nothing of it is in the queue any more.
  void Enter();
  void Leave();
  // No call begins any more. The queue ends when the last one has ended.
  void Close();

 private:
  // Waits for one event, handles it, and asks to be called again.
  void Wait();

  boost::asio::io_context& io_;
  grpc::CompletionQueue queue_;
  std::mutex mutex_;
  size_t num_calls_ = 0;    // guarded by mutex_
  bool is_closed_ = false;  // guarded by mutex_
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_CALLS_CALL_QUEUE_H_
