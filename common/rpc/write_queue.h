// Messages on their way into an asynchronous gRPC stream, which takes one at a time.
#ifndef TANDEM_COMMON_RPC_WRITE_QUEUE_H_
#define TANDEM_COMMON_RPC_WRITE_QUEUE_H_

#include <cstddef>
#include <deque>
#include <utility>

namespace tandem {

// Keeps order; the first message is the one under way. Not thread-safe.
template <typename Message>
class WriteQueue {
 public:
  void Push(Message message) { messages_.push_back(std::move(message)); }

  // The message to write now; null while one is under way or there is none.
  const Message* Begin() {
    if (under_way_ || messages_.empty()) return nullptr;
    under_way_ = true;
    return &messages_.front();
  }
  // The message under way was written, or never will be.
  void End() {
    under_way_ = false;
    messages_.pop_front();
  }
  // Forgets what has not begun.
  void Clear() { messages_.erase(messages_.begin() + (under_way_ ? 1 : 0), messages_.end()); }

  bool under_way() const { return under_way_; }
  size_t size() const { return messages_.size(); }

 private:
  std::deque<Message> messages_;
  bool under_way_ = false;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_RPC_WRITE_QUEUE_H_
