#include "tests/simt/simt.h"

#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#if defined(TANDEM_ADDRESS_SANITIZER)
#include <sanitizer/common_interface_defs.h>
#endif

namespace simt {
namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr unsigned kMostThreads = 1024;  // threads of a block

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "simt: %s\n", what.c_str());
  std::abort();
}

// A warp operation. It is free again when each participating lane has read its result.
struct Meeting {
  uint32_t mask = 0;  // 0: it is free
  uint32_t arrived = 0;
  uint32_t unread = 0;
  uint64_t values[kWarpSize] = {};
};
struct Warp {
  std::deque<Meeting> meetings;  // diverged lanes meet separately, by mask
  uint32_t exited = 0;
};

// SplitMix64 (Steele et al. 2014, "Fast splittable pseudorandom number generators"). Each pass over
// the threads of a block draws an order, so the generator must be fast.
class Random {
 public:
  using result_type = uint64_t;
  explicit Random(uint64_t seed) : state_(seed) {}
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return ~uint64_t{0}; }
  uint64_t operator()() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
  }

 private:
  uint64_t state_;
};

class Block;

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};

void Do(const Copy& copy) {
  if (copy.from == nullptr) {
    std::memset(copy.to, 0, copy.bytes);
  } else {
    std::memcpy(copy.to, copy.from, copy.bytes);
  }
}

struct Thread {
  Index index;
  unsigned id = 0;
  boost::context::fiber fiber;
  enum class State { kReady, kAtBarrier, kInWarp, kDone } state = State::kReady;
  std::vector<Copy> copies;                   // those of the group that has not ended
  std::deque<std::vector<Copy>> copy_groups;  // groups that have ended, from the first to the last
#if defined(TANDEM_ADDRESS_SANITIZER)
  void* fake_stack = nullptr;
  const void* stack_bottom = nullptr;
  size_t stack_size = 0;
#endif
};

// Memory that ends exactly at its size, so that AddressSanitizer sees accesses past it.
class SharedArena {
 public:
  explicit SharedArena(size_t bytes)
      : bytes_(bytes),
        memory_(std::aligned_alloc(16, (std::max<size_t>(bytes, 1) + 15) / 16 * 16)) {}
  ~SharedArena() { std::free(memory_); }
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;
  void Poison() { std::memset(memory_, 0xFF, bytes_); }  // NaN as a float, -1 as an integer
  void* data() { return memory_; }

 private:
  size_t bytes_;
  void* memory_;
};

class Block {
 public:
  Block(Extent grid, Extent extent, size_t shared_bytes, const std::function<void()>& kernel)
      : grid_(grid),
        extent_(extent),
        kernel_(kernel),
        shared_(shared_bytes),
        threads_(extent.count()),
        warps_((extent.count() + kWarpSize - 1) / kWarpSize),
        order_(extent.count()) {
    for (unsigned id = 0; id < threads_.size(); ++id) {
      threads_[id].id = id;
      threads_[id].index = {id % extent.x, id / extent.x % extent.y, id / extent.x / extent.y};
    }
    std::iota(order_.begin(), order_.end(), 0u);
  }

  void Run(Index index, Random& random);

  Thread& current() { return *current_; }
  bool copies_late() const { return copies_late_; }
  const Index& index() const { return index_; }
  const Extent& extent() const { return extent_; }
  const Extent& grid() const { return grid_; }
  void* shared() { return shared_.data(); }

  int Barrier(bool predicate) {
    num_true_ += predicate ? 1 : 0;
    current_->state = Thread::State::kAtBarrier;
    Switch();
    return last_count_;
  }

  // Returns what `read` makes of the values, once all lanes of `mask` are here.
  template <typename Read>
  auto Meet(uint32_t mask, uint64_t value, const Read& read) {
    Thread& thread = *current_;
    const unsigned lane = thread.id % kWarpSize;
    const size_t warp_id = thread.id / kWarpSize;
    Warp& warp = warps_[warp_id];
    const auto fail = [&](const char* what) {
      Fail("thread " + std::to_string(thread.id) + ": " + what);
    };
    if ((mask >> lane & 1) == 0) fail("its lane is not in the mask of its warp operation");
    if ((mask & ~LanesOf(warp_id)) != 0) fail("the mask names lanes that the warp does not have");
    if ((mask & warp.exited) != 0) fail("the mask names a lane that has ended");
    Meeting& meeting = MeetingOf(warp, mask);
    meeting.arrived |= 1u << lane;
    meeting.values[lane] = value;
    if (meeting.arrived != mask) {
      thread.state = Thread::State::kInWarp;
      Switch();
    } else {
      meeting.unread = mask;
      for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        const auto other = static_cast<unsigned>(std::countr_zero(rest));
        threads_[warp_id * kWarpSize + other].state = Thread::State::kReady;
      }
    }
    const auto result = read(meeting.values);
    meeting.unread &= ~(1u << lane);
    if (meeting.unread == 0) meeting.mask = 0;
    return result;
  }

 private:
  uint32_t LanesOf(size_t warp) const {
    const size_t lanes = std::min<size_t>(kWarpSize, threads_.size() - warp * kWarpSize);
    return lanes == kWarpSize ? ~0u : (1u << lanes) - 1;
  }
  // Returns the meeting of these lanes that is not complete, or a new one.
  static Meeting& MeetingOf(Warp& warp, uint32_t mask) {
    Meeting* free = nullptr;
    for (Meeting& meeting : warp.meetings) {
      if (meeting.mask == mask && meeting.unread == 0) return meeting;
      if (meeting.mask == 0) free = &meeting;
    }
    if (free == nullptr) free = &warp.meetings.emplace_back();
    free->mask = mask;
    free->arrived = 0;
    return *free;
  }
  // Switches to the scheduler. Returns when it is this thread's turn again.
  void Switch();
  void Resume(Thread& thread);
  void Start(Thread& thread);

  Extent grid_, extent_;
  const std::function<void()>& kernel_;
  SharedArena shared_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<unsigned> order_;
  Index index_;
  Thread* current_ = nullptr;
  boost::context::fiber scheduler_;
  bool copies_late_ = true;
  int num_true_ = 0;
  int last_count_ = 0;
#if defined(TANDEM_ADDRESS_SANITIZER)
  void* scheduler_fake_stack_ = nullptr;
  const void* scheduler_bottom_ = nullptr;
  size_t scheduler_size_ = 0;
#endif
};

// The code of a kernel asks for its index without an argument that names the block.
thread_local Block* running = nullptr;

#if defined(TANDEM_ADDRESS_SANITIZER)
void Block::Switch() {
  Thread& thread = *current_;
  __sanitizer_start_switch_fiber(&thread.fake_stack, scheduler_bottom_, scheduler_size_);
  scheduler_ = std::move(scheduler_).resume();
  __sanitizer_finish_switch_fiber(thread.fake_stack, &scheduler_bottom_, &scheduler_size_);
}
void Block::Resume(Thread& thread) {
  current_ = &thread;
  __sanitizer_start_switch_fiber(&scheduler_fake_stack_, thread.stack_bottom, thread.stack_size);
  thread.fiber = std::move(thread.fiber).resume();
  __sanitizer_finish_switch_fiber(scheduler_fake_stack_, nullptr, nullptr);
}
#else
void Block::Switch() { scheduler_ = std::move(scheduler_).resume(); }
void Block::Resume(Thread& thread) {
  current_ = &thread;
  thread.fiber = std::move(thread.fiber).resume();
}
#endif

// Stacks that begin at the same place of a page would share the same few lines of the caches. So
// they begin at as many places as there are colors.
constexpr size_t kStackColors = 61;
constexpr size_t kColorBytes = 192;

// Keeps stacks from block to block, because making one costs more than running a short kernel on
// it. A stack keeps its color: AddressSanitizer remembers where frames lie that never return.
class StackPool {
 public:
  boost::context::stack_context allocate(size_t color) {
    std::vector<boost::context::stack_context>& free = free_[color];
    if (free.empty()) return maker_.allocate();
    const boost::context::stack_context stack = free.back();
    free.pop_back();
    return stack;
  }
  void deallocate(boost::context::stack_context& stack, size_t color) noexcept {
    free_[color].push_back(stack);
  }
  ~StackPool() {
    for (auto& free : free_) {
      for (boost::context::stack_context& stack : free) maker_.deallocate(stack);
    }
  }

 private:
  boost::context::fixedsize_stack maker_{kStackBytes};
  std::array<std::vector<boost::context::stack_context>, kStackColors> free_;
};
StackPool& Stacks() {
  static thread_local StackPool pool;
  return pool;
}
struct PooledStack {
  size_t color;
  boost::context::stack_context allocate() { return Stacks().allocate(color); }
  void deallocate(boost::context::stack_context& stack) noexcept {
    Stacks().deallocate(stack, color);
  }
};

void Block::Start(Thread& thread) {
  PooledStack allocator{thread.id % kStackColors};
  const boost::context::stack_context stack = allocator.allocate();
  const size_t offset = allocator.color * kColorBytes;
  void* const top = static_cast<char*>(stack.sp) - offset;
  const size_t size = stack.size - offset;
#if defined(TANDEM_ADDRESS_SANITIZER)
  thread.stack_bottom = static_cast<char*>(top) - size;
  thread.stack_size = size;
#endif
  thread.state = Thread::State::kReady;
  thread.copies.clear();
  thread.copy_groups.clear();
  thread.fiber = boost::context::fiber(
      std::allocator_arg, boost::context::preallocated(top, size, stack), allocator,
      [this, &thread](boost::context::fiber&& scheduler) {
#if defined(TANDEM_ADDRESS_SANITIZER)
        __sanitizer_finish_switch_fiber(nullptr, &scheduler_bottom_, &scheduler_size_);
#endif
        scheduler_ = std::move(scheduler);
        kernel_();
        thread.state = Thread::State::kDone;
        warps_[thread.id / kWarpSize].exited |= 1u << thread.id % kWarpSize;
#if defined(TANDEM_ADDRESS_SANITIZER)
        __sanitizer_start_switch_fiber(nullptr, scheduler_bottom_, scheduler_size_);
#endif
        return std::move(scheduler_);
      });
}

void Block::Run(Index index, Random& random) {
  index_ = index;
  shared_.Poison();
  for (Warp& warp : warps_) warp.exited = 0;
  num_true_ = 0;
  copies_late_ = random() % 2 == 0;
  running = this;
  for (Thread& thread : threads_) Start(thread);
  for (;;) {
    std::shuffle(order_.begin(), order_.end(), random);
    bool ran = false;
    for (const unsigned id : order_) {
      if (threads_[id].state != Thread::State::kReady) continue;
      Resume(threads_[id]);
      ran = true;
    }
    if (ran) continue;
    size_t done = 0;
    size_t at_barrier = 0;
    for (const Thread& thread : threads_) {
      done += thread.state == Thread::State::kDone ? 1 : 0;
      at_barrier += thread.state == Thread::State::kAtBarrier ? 1 : 0;
    }
    if (done == threads_.size()) break;
    if (done + at_barrier != threads_.size()) {
      Fail("threads wait in a warp operation for lanes that never come: " +
           std::to_string(threads_.size() - done - at_barrier) + " of " +
           std::to_string(threads_.size()) + ", with " + std::to_string(at_barrier) +
           " at a barrier and " + std::to_string(done) + " ended");
    }
    if (done != 0) {
      // Later GPUs accept this, but the programming guide does not.
      Fail(std::to_string(at_barrier) + " threads are at a barrier that " + std::to_string(done) +
           " ended without");
    }
    last_count_ = std::exchange(num_true_, 0);
    for (Thread& thread : threads_) thread.state = Thread::State::kReady;
  }
  running = nullptr;
}

Block& Running() {
  if (running == nullptr) Fail("device code runs outside of a kernel");
  return *running;
}

// Sums with the largest known errors of matrix units (Fasi et al. 2021, "Numerical behavior of
// NVIDIA tensor cores"): addends are cut off at the 24th bit of the largest one, and so is their
// sum. GPUs since Turing keep one more bit.
float SumAsMatrixUnitsDo(std::span<const double> addends) {
  double largest = 0;
  double plain = 0;
  for (const double addend : addends) {
    largest = std::max(largest, std::abs(addend));
    plain += addend;
  }
  if (largest == 0 || !std::isfinite(plain)) return static_cast<float>(plain);
  const int last_bit = std::ilogb(largest) - 23;
  const double to_whole = std::ldexp(1.0, -last_bit);
  double sum = 0;  // exact, because these are whole numbers far below 2^53
  for (const double addend : addends) sum += std::trunc(addend * to_whole);
  sum = std::ldexp(sum, last_bit);
  const auto nearest = static_cast<float>(sum);
  return std::abs(double{nearest}) > std::abs(sum) ? std::nextafterf(nearest, 0.0f) : nearest;
}

}  // namespace

void Run(Extent grid, Extent block, size_t shared_bytes, uint64_t seed,
         const std::function<void()>& kernel) {
  if (block.count() == 0 || block.count() > kMostThreads)
    Fail("a block of " + std::to_string(block.count()) + " threads");
  if (running != nullptr) Fail("a kernel starts within a kernel");
  Random random(seed);
  Block runner(grid, block, shared_bytes, kernel);
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) runner.Run({x, y, z}, random);
    }
  }
}

const Index& ThreadIndex() { return Running().current().index; }
const Index& BlockIndex() { return Running().index(); }
const Extent& BlockExtent() { return Running().extent(); }
const Extent& GridExtent() { return Running().grid(); }
void* SharedMemory() { return Running().shared(); }

void SyncThreads() { Running().Barrier(false); }
int SyncThreadsCount(bool predicate) { return Running().Barrier(predicate); }

int Lane() { return static_cast<int>(Running().current().id % kWarpSize); }

uint64_t Exchange(uint32_t mask, uint64_t value, int source) {
  const bool given =
      source >= 0 && source < static_cast<int>(kWarpSize) && (mask >> source & 1) != 0;
  return Running().Meet(mask, value,
                        [&](const uint64_t* values) { return given ? values[source] : value; });
}

void MultiplyFragments(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&d)[4]) {
  struct Held {
    const uint32_t* a;
    const uint32_t* b;
  };
  constexpr uint32_t kAll = 0xFFFFFFFF;
  Block& block = Running();
  const Held mine{a, b};
  const auto all = block.Meet(kAll, reinterpret_cast<uintptr_t>(&mine), [](const uint64_t* values) {
    std::array<uint64_t, kWarpSize> copy;
    std::copy_n(values, kWarpSize, copy.begin());
    return copy;
  });
  const auto held = [&](unsigned lane) {
    return reinterpret_cast<const Held*>(static_cast<uintptr_t>(all[lane]));
  };
  const auto half = [](uint32_t word, unsigned upper) {
    return double{std::bit_cast<float>(upper != 0 ? word & 0xFFFF0000 : word << 16)};
  };
  const auto a_at = [&](unsigned row, unsigned k) {
    return half(held(row % 8 * 4 + k % 8 / 2)->a[row / 8 + k / 8 * 2], k % 2);
  };
  const auto b_at = [&](unsigned k, unsigned column) {
    return half(held(column * 4 + k % 8 / 2)->b[k / 8], k % 2);
  };
  const auto lane = static_cast<unsigned>(block.current().id % kWarpSize);
  float sums[4];
  for (unsigned i = 0; i < 4; ++i) {
    std::array<double, 17> addends{};
    for (unsigned k = 0; k < 16; ++k) {
      addends[k] = a_at(lane / 4 + i / 2 * 8, k) * b_at(k, lane % 4 * 2 + i % 2);
    }
    addends[16] = d[i];
    sums[i] = SumAsMatrixUnitsDo(addends);
  }
  // Waits until all lanes have read this lane's value.
  block.Meet(kAll, 0, [](const uint64_t*) { return 0; });
  std::copy(std::begin(sums), std::end(sums), std::begin(d));
}

void CopyLater(void* to, const void* from, size_t bytes) {
  const Copy copy = {to, from, bytes};
  if (Running().copies_late()) {
    Running().current().copies.push_back(copy);
  } else {
    Do(copy);
  }
}

void EndCopyGroup() {
  Thread& thread = Running().current();
  thread.copy_groups.push_back(std::exchange(thread.copies, {}));
}

void WaitForCopyGroups(size_t left) {
  for (auto& groups = Running().current().copy_groups; groups.size() > left; groups.pop_front()) {
    for (const Copy& copy : groups.front()) Do(copy);
  }
}

uint32_t Ballot(uint32_t mask, bool predicate) {
  return Running().Meet(mask, predicate ? 1 : 0, [mask](const uint64_t* values) {
    uint32_t bits = 0;
    for (unsigned lane = 0; lane < kWarpSize; ++lane) {
      if ((mask >> lane & 1) != 0 && values[lane] != 0) bits |= 1u << lane;
    }
    return bits;
  });
}

}  // namespace simt
