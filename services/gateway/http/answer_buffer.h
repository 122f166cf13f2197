// The part of an answer that the client has not taken yet.
#ifndef TANDEM_SERVICES_GATEWAY_HTTP_ANSWER_BUFFER_H_
#define TANDEM_SERVICES_GATEWAY_HTTP_ANSWER_BUFFER_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "services/gateway/http/answer_head.h"

namespace tandem::gateway {

// One write is under way at a time. What comes meanwhile is collected for the next one.
class AnswerBuffer {
 public:
  void Append(std::string_view bytes) { next_ += bytes; }

  // Begins a body. In pieces, it has an end of its own (RFC 9112, section 7.1).
  void BeginBody(bool in_pieces) { in_pieces_ = in_pieces; }
  void AppendToBody(std::string_view bytes) {
    if (in_pieces_) {
      AppendChunk(bytes, &next_);
    } else {
      next_ += bytes;
    }
  }
  void EndBody() {
    if (in_pieces_) next_ += kLastChunk;
  }

  bool is_writing() const { return is_writing_; }
  // Whether there is something for the next write.
  bool has_more() const { return !next_.empty(); }
  // What a write without waiting may take now, and what it took. PRECOND: no write is under way.
  std::string_view next() const { return next_; }
  void Skip(size_t count) { next_.erase(0, count); }
  size_t waiting_bytes() const { return next_.size() + written_.size(); }

  // Returns what the next write takes. It stays until AfterWrite. PRECOND: no write is under way.
  const std::string& BeginWrite() {
    is_writing_ = true;
    written_.swap(next_);
    return written_;
  }
  void AfterWrite() {
    is_writing_ = false;
    written_.clear();
    if (written_.capacity() > kKeptBytes) written_.shrink_to_fit();
  }

 private:
  static constexpr size_t kKeptBytes = 16 << 10;

  std::string next_;
  std::string written_;
  bool is_writing_ = false;
  bool in_pieces_ = false;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_HTTP_ANSWER_BUFFER_H_
