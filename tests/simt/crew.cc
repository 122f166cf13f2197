#include "tests/simt/crew.h"

#include <boost/context/fixedsize_stack.hpp>

#include <memory>
#include <utility>

#if defined(TANDEM_ADDRESS_SANITIZER)
#include <sanitizer/common_interface_defs.h>
#endif

namespace simt {
namespace {

constexpr size_t kStackBytes = 256 << 10;
// Stacks that begin at the same place of a page would share the same few lines of the caches. So
// they begin at as many places as there are colors.
constexpr size_t kStackColors = 61;
constexpr size_t kColorBytes = 192;

}  // namespace

Crew::Crew() : contexts_(kMostMembers + 1) {}

Crew::~Crew() {
  ends_ = true;
  for (unsigned number = 0; number < kMostMembers; ++number) {
    if (contexts_[number].fiber) Switch(number);
  }
}

void Crew::Run(const std::function<unsigned()>& work, unsigned num_members, unsigned first) {
  work_ = &work;
  // Fibers are made at home. Boost enters a fiber when it makes it, and AddressSanitizer may put
  // the frame of that call on the fake stack of the maker, which must live longer than the fiber.
  for (unsigned number = 0; number < num_members; ++number) {
    if (!contexts_[number].fiber) contexts_[number].fiber = Make(number);
  }
  Switch(first);
}

void Crew::Switch(unsigned to) {
  Context& from = contexts_[current_];
  Context& next = contexts_[to];
  previous_ = current_;
  current_ = to;
  Leave(&from.fake_stack, next);
  boost::context::fiber came = std::move(next.fiber).resume();
  Arrive(from.fake_stack, std::move(came));
}

boost::context::fiber Crew::Make(unsigned number) {
  boost::context::fixedsize_stack maker(kStackBytes);
  const boost::context::stack_context stack = maker.allocate();
  const size_t offset = number % kStackColors * kColorBytes;
  void* const top = static_cast<char*>(stack.sp) - offset;
  Context& context = contexts_[number];
  context.stack_size = stack.size - offset;
  context.stack_bottom = static_cast<char*>(top) - context.stack_size;
  return {std::allocator_arg, boost::context::preallocated(top, context.stack_size, stack), maker,
          [this, number](boost::context::fiber&& from) { return Live(number, std::move(from)); }};
}

boost::context::fiber Crew::Live(unsigned number, boost::context::fiber&& from) {
  Arrive(nullptr, std::move(from));
  while (!ends_) Switch((*work_)());
  previous_ = number;
  current_ = kHome;
  Leave(nullptr, contexts_[kHome]);
  return std::move(contexts_[kHome].fiber);
}

#if defined(TANDEM_ADDRESS_SANITIZER)
void Crew::Leave(void** fake_stack, const Context& to) {
  __sanitizer_start_switch_fiber(fake_stack, to.stack_bottom, to.stack_size);
}
void Crew::Arrive(void* fake_stack, boost::context::fiber&& from) {
  Context& previous = contexts_[previous_];
  __sanitizer_finish_switch_fiber(fake_stack, &previous.stack_bottom, &previous.stack_size);
  previous.fiber = std::move(from);
}
#else
void Crew::Leave(void** /*fake_stack*/, const Context& /*to*/) {}
void Crew::Arrive(void* /*fake_stack*/, boost::context::fiber&& from) {
  contexts_[previous_].fiber = std::move(from);
}
#endif

}  // namespace simt
