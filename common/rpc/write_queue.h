// Messages that wait for an asynchronous gRPC stream, which writes one at a time.
#ifndef TANDEM_COMMON_RPC_WRITE_QUEUE_H_
#define TANDEM_COMMON_RPC_WRITE_QUEUE_H_

#include <cstddef>
#include <deque>
#include <utility>

namespace tandem {

// Keeps the order of messages. The first message is the one that is being written. Not thread-safe.
template <typename Message>
class WriteQueue {
 public:
  void Push(Message message) { messages_.push_back(std::move(message)); }

  // Returns the message to write now. Null: a message is being written, or there is none.
  const Message* Begin() {
    if (under_way_ || messages_.empty()) return nullptr;
    under_way_ = true;
    return &messages_.front();
  }
  // Called when the current message was written, or will never be.
  void End() {
    under_way_ = false;
    messages_.pop_front();
  }
  // Drops the messages whose writing has not begun.
  void Clear() { messages_.erase(messages_.begin() + (under_way_ ? 1 : 0), messages_.end()); }

  bool under_way() const { return under_way_; }
  size_t size() const { return messages_.size(); }

 private:
  std::deque<Message> messages_;
  bool under_way_ = false;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_RPC_WRITE_QUEUE_H_
