// Prompts that verifiers died of. A prompt that killed too many of them is refused for a while.
#ifndef TANDEM_SERVICES_ROUTER_ADMISSION_QUARANTINE_H_
#define TANDEM_SERVICES_ROUTER_ADMISSION_QUARANTINE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "services/router/engine/request_faults.h"

namespace tandem {

// Keeps the deaths that a prompt caused after its request has ended, so that a client that gives up
// and tries again does not begin anew. It knows prompts by their hash (common/token_hash.h), and it
// keeps only some: first those with the most deaths, and then the newest.
class Quarantine {
 public:
  static constexpr double kSeconds = 600;
  static constexpr size_t kMaxPrompts = 64;

  // Verifiers died in a row with a request of this prompt, which has ended.
  void Add(uint64_t prompt_hash, const VerifierDeaths& deaths, double now) {
    Remove(prompt_hash);
    if (entries_.size() == kMaxPrompts) {
      entries_.erase(
          std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
            return std::tie(a.deaths.num, a.until) < std::tie(b.deaths.num, b.until);
          }));
    }
    entries_.push_back({prompt_hash, deaths, now + kSeconds});
  }
  // A verifier computed the whole prompt.
  void Remove(uint64_t prompt_hash) {
    std::erase_if(entries_, [&](const Entry& entry) { return entry.prompt_hash == prompt_hash; });
  }
  // Verifiers that died in a row with this prompt. None are known of most prompts.
  VerifierDeaths Find(uint64_t prompt_hash, double now) const {
    for (const Entry& entry : entries_) {
      if (entry.prompt_hash == prompt_hash && now < entry.until) return entry.deaths;
    }
    return {};
  }
  bool empty() const { return entries_.empty(); }

 private:
  struct Entry {
    uint64_t prompt_hash = 0;
    VerifierDeaths deaths;
    double until = 0;  // when the prompt is forgotten
  };
  std::vector<Entry> entries_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ADMISSION_QUARANTINE_H_
