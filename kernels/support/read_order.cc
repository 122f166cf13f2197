#include "kernels/support/read_order.h"

#include <atomic>
#include <optional>

namespace tandem {
namespace {

// Weights of at most this size may stay in a cache between two passes.
constexpr size_t kMaxCachedBytes = 2 << 20;

bool IsMadeByAmd() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

std::atomic<std::optional<ReadOrder>> forced_order{std::nullopt};

}  // namespace

ReadOrder ReadOrderOf(size_t weight_bytes) {
  static const bool is_made_by_amd = IsMadeByAmd();
  const std::optional<ReadOrder> forced = forced_order.load(std::memory_order_relaxed);
  if (forced.has_value()) return *forced;
  return is_made_by_amd && weight_bytes > kMaxCachedBytes ? ReadOrder::kRowAfterRow
                                                          : ReadOrder::kSomeRowsTogether;
}

void ForceReadOrder(std::optional<ReadOrder> order) {
  forced_order.store(order, std::memory_order_relaxed);
}

}  // namespace tandem
