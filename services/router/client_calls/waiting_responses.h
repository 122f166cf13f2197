// The responses of a call that its client did not take yet.
#ifndef TANDEM_SERVICES_ROUTER_CLIENT_CALLS_WAITING_RESPONSES_H_
#define TANDEM_SERVICES_ROUTER_CLIENT_CALLS_WAITING_RESPONSES_H_

#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include "tandem/v1/generate.pb.h"

namespace tandem {

// They are serialized, because a response with logprobs takes seven times the memory as a message.
class WaitingResponses {
 public:
  bool empty() const { return responses_.empty(); }
  // The size of the next one. PRECOND: there is one.
  size_t next_bytes() const { return responses_.front().size(); }

  // Returns false, and drops all, if more than `most_bytes` would wait.
  bool Put(const v1::GenerateResponse& response, size_t most_bytes) {
    std::string bytes = response.SerializeAsString();
    bytes_ += sizeof(std::string) + bytes.size();
    if (bytes_ > most_bytes) {
      Clear();
      return false;
    }
    responses_.push_back(std::move(bytes));
    return true;
  }
  // PRECOND: there is one.
  v1::GenerateResponse Take() {
    v1::GenerateResponse response;
    response.ParseFromString(responses_.front());
    bytes_ -= sizeof(std::string) + responses_.front().size();
    responses_.pop_front();
    return response;
  }
  void Clear() {
    responses_.clear();
    bytes_ = 0;
  }

 private:
  std::deque<std::string> responses_;
  size_t bytes_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_CLIENT_CALLS_WAITING_RESPONSES_H_
