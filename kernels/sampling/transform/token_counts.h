// How often each token occurs in a sequence: the context that penalties look at.
#ifndef TANDEM_KERNELS_SAMPLING_TRANSFORM_TOKEN_COUNTS_H_
#define TANDEM_KERNELS_SAMPLING_TRANSFORM_TOKEN_COUNTS_H_

#include <cstdint>
#include <unordered_map>

namespace tandem {

// Sparse counts. Remove undoes Add exactly, so that AcceptReject can walk a draft block and take
// the walk back.
class TokenCounts {
 public:
  struct Count {
    int32_t prompt = 0;
    int32_t output = 0;
  };

  void Add(int32_t token_id, bool is_output) {
    Count& count = counts_[token_id];
    ++(is_output ? count.output : count.prompt);
  }
  // PRECOND: was added.
  void Remove(int32_t token_id, bool is_output) {
    auto it = counts_.find(token_id);
    --(is_output ? it->second.output : it->second.prompt);
    if (it->second.output == 0 && it->second.prompt == 0) counts_.erase(it);
  }
  void Clear() { counts_.clear(); }
  const std::unordered_map<int32_t, Count>& counts() const { return counts_; }

 private:
  std::unordered_map<int32_t, Count> counts_;
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLING_TRANSFORM_TOKEN_COUNTS_H_
