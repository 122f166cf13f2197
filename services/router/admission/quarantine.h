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

// Keeps the deaths that a prompt caused, so that a client that gives up and tries again does not
// begin anew. It knows prompts by their hash (common/token_hash.h), and it keeps only some: first
// those with the most deaths, and then the newest.
class Quarantine {
 public:
  static constexpr double kSeconds = 600;
  static constexpr size_t kMaxPrompts = 64;

  // Verifiers died in a row with a request of this prompt. An entry with more deaths is kept as it
  // is. The prompt is forgotten some time after the last death, however often it is added.
  void Add(uint64_t prompt_hash, const VerifierDeaths& deaths, double now) {
    EraseExpired(now);
    if (Find(prompt_hash, now).num > deaths.num || now >= deaths.last_at + kSeconds) return;
    std::erase_if(entries_, [&](const Entry& entry) { return entry.prompt_hash == prompt_hash; });
    if (entries_.size() == kMaxPrompts) {
      entries_.erase(
          std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
            return std::tie(a.deaths.num, a.until) < std::tie(b.deaths.num, b.until);
          }));
    }
    entries_.push_back({prompt_hash, deaths, deaths.last_at + kSeconds});
  }
  // A verifier holds this number of rows of a request with the prompt. If no verifier that died got
  // as far, the deaths are forgotten.
  void VerifierHolds(uint64_t prompt_hash, uint32_t num_rows) {
    std::erase_if(entries_, [&](const Entry& entry) {
      return entry.prompt_hash == prompt_hash && num_rows > entry.deaths.rows;
    });
  }
  // Verifiers that died in a row with this prompt. None are known of most prompts.
  VerifierDeaths Find(uint64_t prompt_hash, double now) const {
    for (const Entry& entry : entries_) {
      if (entry.prompt_hash == prompt_hash && now < entry.until) return entry.deaths;
    }
    return {};
  }
  // Forgets the prompts whose time is over.
  void EraseExpired(double now) {
    std::erase_if(entries_, [now](const Entry& entry) { return now >= entry.until; });
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
