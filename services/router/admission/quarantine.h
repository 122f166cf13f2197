// Prompts that killed verifiers. They are refused for a while.
#ifndef TANDEM_SERVICES_ROUTER_ADMISSION_QUARANTINE_H_
#define TANDEM_SERVICES_ROUTER_ADMISSION_QUARANTINE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>

#include "common/token_hash.h"

namespace tandem {

// Knows prompts by their hash (common/token_hash.h), the newest ones only.
class Quarantine {
 public:
  static constexpr double kSeconds = 600;
  static constexpr size_t kMaxPrompts = 64;

  void Add(uint64_t prompt_hash, double now) {
    if (entries_.size() == kMaxPrompts) entries_.pop_front();
    entries_.emplace_back(prompt_hash, now + kSeconds);
  }
  bool Has(std::span<const int32_t> prompt, double now) const {
    if (entries_.empty()) return false;
    const uint64_t hash = HashTokens(prompt);
    return std::any_of(entries_.begin(), entries_.end(), [&](const auto& entry) {
      return entry.first == hash && now < entry.second;
    });
  }

 private:
  std::deque<std::pair<uint64_t, double>> entries_;  // hash, and until when; the newest last
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ADMISSION_QUARANTINE_H_
