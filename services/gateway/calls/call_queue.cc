#include "services/gateway/calls/call_queue.h"

#include <boost/asio/defer.hpp>
#include <boost/asio/post.hpp>

#include "common/rpc/async_tag.h"

namespace tandem::gateway {

namespace asio = boost::asio;

CallQueue::CallQueue(asio::io_context& io) : io_(io) {
  asio::post(io_, [this] { Wait(); });
}

CallQueue::~CallQueue() {
  Close();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) static_cast<AsyncTag*>(tag)->Proceed(ok);
}

void CallQueue::Enter() {
  const std::lock_guard lock(mutex_);
  ++num_calls_;
}

void CallQueue::Leave() {
  const std::lock_guard lock(mutex_);
  if (--num_calls_ == 0 && is_closed_) queue_.Shutdown();
}

void CallQueue::Close() {
  const std::lock_guard lock(mutex_);
  if (is_closed_) return;
  is_closed_ = true;
  if (num_calls_ == 0) queue_.Shutdown();
}

void CallQueue::Wait() {
  void* tag = nullptr;
  bool ok = false;
  if (!queue_.Next(&tag, &ok)) return;
  static_cast<AsyncTag*>(tag)->Proceed(ok);
  // To return is to hand over what the event left for the thread, such as a strand that has got
  // more work meanwhile. No thread is woken for the next wait.
  asio::defer(io_, [this] { Wait(); });
}

}  // namespace tandem::gateway
