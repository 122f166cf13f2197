#include "kernels/support/read_order.h"

#include <atomic>

namespace tandem {
namespace {

bool IsMadeByAmd() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

std::atomic<ReadOrder>& Order() {
  static std::atomic<ReadOrder> order{IsMadeByAmd() ? ReadOrder::kRowAfterRow
                                                    : ReadOrder::kSomeRowsTogether};
  return order;
}

}  // namespace

ReadOrder WeightReadOrder() { return Order().load(std::memory_order_relaxed); }

void SetWeightReadOrder(ReadOrder order) { Order().store(order, std::memory_order_relaxed); }

}  // namespace tandem
