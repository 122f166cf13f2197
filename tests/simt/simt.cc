#include "tests/simt/simt.h"

#include <malloc.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/simt/crew.h"

namespace simt {
namespace {

// Each launch takes large pieces of memory and frees them. The C library keeps them, because their
// pages would otherwise fault again, which took a third of the time of a test.
[[maybe_unused]] const bool kKeepsFreedMemory =
    mallopt(M_MMAP_MAX, 0) == 1 && mallopt(M_TRIM_THRESHOLD, 1 << 30) == 1;

// The most turns of a warp's lanes before another warp runs. Half of a warp's visits are short.
// While a warp runs on, its stacks stay in the first-level cache. Short visits end between two
// lanes that have not met, so that other warps can write what the second one reads.
constexpr unsigned kMostTurns = 1024;
constexpr unsigned kMostTurnsOfShortVisits = 64;
constexpr uint32_t kAllLanes = 0xFFFFFFFF;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "simt: %s\n", what.c_str());
  std::abort();
}

// Names what the lanes of a warp do together: the function that is called with their values.
using Operation = void (*)(uint64_t* values);
void ExchangeValues(uint64_t* /*values*/) {}
void CollectBallot(uint64_t* /*values*/) {}

// A warp operation. It is free again when each participating lane has read its result.
struct Meeting {
  uint32_t mask = 0;  // 0: it is free
  Operation operation = nullptr;
  uint32_t arrived = 0;
  uint32_t unread = 0;
  uint64_t values[kWarpSize] = {};
};
// Sets of lanes have one bit for each lane.
struct Warp {
  uint32_t lanes = 0;             // those that the warp has
  uint32_t ready = 0;             // those that can run, and the one that runs
  uint32_t exited = 0;            // those that have ended
  std::vector<Meeting> meetings;  // diverged lanes meet separately, by mask
};

// SplitMix64 (Steele et al. 2014, "Fast splittable pseudorandom number generators"). Each pass over
// the warps of a block draws an order, so the generator must be fast.
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
  Place place;
  std::vector<Copy> copies;                    // those of the group that has not ended
  std::vector<std::vector<Copy>> copy_groups;  // groups that have ended, from the first to the last
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

// The fibers of the calling thread.
Crew& TheCrew() {
  static thread_local Crew crew;
  return crew;
}

class Block {
 public:
  Block(Extent grid, Extent extent, size_t shared_bytes, const std::function<void()>& kernel)
      : grid_(grid),
        extent_(extent),
        kernel_(kernel),
        crew_(TheCrew()),
        shared_(shared_bytes),
        threads_(extent.count()),
        warps_((extent.count() + kWarpSize - 1) / kWarpSize),
        order_(warps_.size()) {
    for (unsigned id = 0; id < threads_.size(); ++id) {
      threads_[id].place = {{id % extent.x, id / extent.x % extent.y, id / extent.x / extent.y},
                            static_cast<int>(id % kWarpSize)};
      warps_[id / kWarpSize].lanes |= 1u << id % kWarpSize;
    }
    std::iota(order_.begin(), order_.end(), size_t{0});
  }

  void Run(Index index, Random& random);

  Thread& current() { return threads_[crew_.current()]; }
  bool copies_late() const { return copies_late_; }
  const Index& index() const { return index_; }
  const Extent& extent() const { return extent_; }
  const Extent& grid() const { return grid_; }
  void* shared() { return shared_.data(); }

  int Barrier(bool predicate) {
    num_true_ += predicate ? 1 : 0;
    ++num_at_barrier_;
    Wait();
    return last_count_;
  }

  // Returns what `read` makes of the values, once all lanes of `mask` are here. The last one to
  // come calls `operation` with them first.
  template <typename Read>
  auto Meet(uint32_t mask, uint64_t value, Operation operation, const Read& read) {
    const unsigned id = crew_.current();
    const unsigned lane = id % kWarpSize;
    Warp& warp = warps_[id / kWarpSize];
    const auto fail = [&](const char* what) { Fail("thread " + std::to_string(id) + ": " + what); };
    if ((mask >> lane & 1) == 0) fail("its lane is not in the mask of its warp operation");
    if ((mask & ~warp.lanes) != 0) fail("the mask names lanes that the warp does not have");
    if ((mask & warp.exited) != 0) fail("the mask names a lane that has ended");
    const size_t place = MeetingOf(warp, mask);
    Meeting& mine = warp.meetings[place];
    if (mine.arrived == 0) mine.operation = operation;
    if (mine.operation != operation) fail("other lanes are in another warp operation");
    mine.arrived |= 1u << lane;
    mine.values[lane] = value;
    if (mine.arrived != mask) {
      Wait();
    } else {
      operation(mine.values);
      mine.unread = mask;
      SetReady(id / kWarpSize, warp.ready | mask);
    }
    Meeting& meeting = warp.meetings[place];  // others may have added meetings
    const auto result = read(meeting.values);
    meeting.unread &= ~(1u << lane);
    if (meeting.unread == 0) meeting.mask = 0;
    return result;
  }

 private:
  // Returns the number of the meeting of these lanes that is not complete, or of a new one.
  static size_t MeetingOf(Warp& warp, uint32_t mask) {
    size_t free = warp.meetings.size();
    for (size_t i = 0; i < warp.meetings.size(); ++i) {
      const Meeting& meeting = warp.meetings[i];
      if (meeting.mask == mask && meeting.unread == 0) return i;
      if (meeting.mask == 0) free = i;
    }
    if (free == warp.meetings.size()) warp.meetings.emplace_back();
    warp.meetings[free].mask = mask;
    warp.meetings[free].arrived = 0;
    return free;
  }
  void SetReady(size_t warp, uint32_t lanes) {
    warps_[warp].ready = lanes;
    const uint32_t bit = 1u << warp;
    ready_warps_ = lanes != 0 ? ready_warps_ | bit : ready_warps_ & ~bit;
  }
  // Takes the running thread out of those that can run.
  void Pause() {
    const unsigned id = crew_.current();
    SetReady(id / kWarpSize, warps_[id / kWarpSize].ready & ~(1u << id % kWarpSize));
  }
  // Lets others run. Returns when the thread is ready again and it is its turn.
  void Wait();
  // Runs the kernel for the thread whose turn it is. Returns whose turn is next.
  unsigned RunThread();
  // Returns whose turn is next. Passes go over the warps in random orders. In a pass, the lanes of
  // a warp have a random number of turns, round after round, and each round is in a random order.
  unsigned NextTurn();
  void BeginPass();
  void NextWarp();
  void OrderLanes();
  // Lets the threads at the barrier go on, once none is ready. Returns false if all have ended.
  bool OpenBarrier();

  Extent grid_, extent_;
  const std::function<void()>& kernel_;
  Crew& crew_;
  SharedArena shared_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  uint32_t ready_warps_ = 0;  // a bit for each warp with a lane that is ready
  size_t num_at_barrier_ = 0;

  Random* random_ = nullptr;
  std::vector<size_t> order_;  // the warps, in the order of this pass
  size_t warp_turn_ = 0;
  uint64_t turns_left_ = 0;
  unsigned lane_turn_ = 0;
  unsigned first_lane_ = 0;
  unsigned lane_step_ = 1;  // odd, so that each lane has one turn

  Index index_;
  bool copies_late_ = true;
  int num_true_ = 0;
  int last_count_ = 0;
};

// The code of a kernel asks for its index without an argument that names the block.
thread_local Block* running = nullptr;

void Block::Wait() {
  Pause();
  const unsigned id = crew_.current();
  const unsigned next = NextTurn();
  if (next != id) crew_.Switch(next);
  place = &threads_[id].place;
}

unsigned Block::RunThread() {
  const unsigned id = crew_.current();
  place = &threads_[id].place;
  kernel_();
  Pause();
  warps_[id / kWarpSize].exited |= 1u << id % kWarpSize;
  return NextTurn();
}

unsigned Block::NextTurn() {
  for (;;) {
    while (ready_warps_ != 0) {
      const size_t warp = order_[warp_turn_];
      while (warps_[warp].ready != 0 && turns_left_ > 0 && lane_turn_ < kWarpSize) {
        const unsigned lane = (first_lane_ + lane_step_ * lane_turn_++) % kWarpSize;
        if ((warps_[warp].ready >> lane & 1) != 0) {
          --turns_left_;
          return static_cast<unsigned>(warp * kWarpSize) + lane;
        }
      }
      if (warps_[warp].ready == 0 || turns_left_ == 0) NextWarp();
      OrderLanes();
    }
    if (!OpenBarrier()) return Crew::kHome;
    BeginPass();
  }
}

void Block::BeginPass() {
  warp_turn_ = order_.size();
  NextWarp();
  OrderLanes();
}

void Block::NextWarp() {
  if (++warp_turn_ >= order_.size()) {
    std::shuffle(order_.begin(), order_.end(), *random_);
    warp_turn_ = 0;
  }
  const uint64_t random = (*random_)();
  turns_left_ = 1 + (random >> 32) % (random % 2 == 0 ? kMostTurns : kMostTurnsOfShortVisits);
}

void Block::OrderLanes() {
  const uint64_t random = (*random_)();
  lane_turn_ = 0;
  first_lane_ = random % kWarpSize;
  lane_step_ = random >> 32 | 1;
}

bool Block::OpenBarrier() {
  size_t done = 0;
  for (const Warp& warp : warps_) done += static_cast<size_t>(std::popcount(warp.exited));
  if (done == threads_.size()) return false;
  if (done + num_at_barrier_ != threads_.size()) {
    Fail("threads wait in a warp operation for lanes that never come: " +
         std::to_string(threads_.size() - done - num_at_barrier_) + " of " +
         std::to_string(threads_.size()) + ", with " + std::to_string(num_at_barrier_) +
         " at a barrier and " + std::to_string(done) + " ended");
  }
  if (done != 0) {
    // Later GPUs accept this, but the programming guide does not.
    Fail(std::to_string(num_at_barrier_) + " threads are at a barrier that " +
         std::to_string(done) + " ended without");
  }
  num_at_barrier_ = 0;
  last_count_ = std::exchange(num_true_, 0);
  for (size_t warp = 0; warp < warps_.size(); ++warp) SetReady(warp, warps_[warp].lanes);
  return true;
}

void Block::Run(Index index, Random& random) {
  index_ = index;
  random_ = &random;
  shared_.Poison();
  num_true_ = 0;
  for (Thread& thread : threads_) {
    thread.copies.clear();
    thread.copy_groups.clear();
  }
  for (size_t warp = 0; warp < warps_.size(); ++warp) {
    warps_[warp].exited = 0;
    SetReady(warp, warps_[warp].lanes);
  }
  copies_late_ = random() % 2 == 0;
  BeginPass();
  running = this;
  crew_.Run([this] { return RunThread(); }, static_cast<unsigned>(threads_.size()), NextTurn());
  running = nullptr;
  place = nullptr;
}

Block& Running() {
  if (running == nullptr) FailOutsideOfAKernel();
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

// What a lane brings to a product of matrices.
struct Fragments {
  const uint32_t* a;
  const uint32_t* b;
  float* d;
};

// Computes the part of a product of matrices that one lane holds.
//   all  [32]  a pointer to the Fragments of each lane
void MultiplyForLane(const uint64_t* all, unsigned lane) {
  const auto held = [&](unsigned other) {
    return reinterpret_cast<const Fragments*>(static_cast<uintptr_t>(all[other]));
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
  float* const d = held(lane)->d;
  for (unsigned i = 0; i < 4; ++i) {
    std::array<double, 17> addends{};
    for (unsigned k = 0; k < 16; ++k) {
      addends[k] = a_at(lane / 4 + i / 2 * 8, k) * b_at(k, lane % 4 * 2 + i % 2);
    }
    addends[16] = d[i];
    d[i] = SumAsMatrixUnitsDo(addends);
  }
}

// What a lane brings to a load of matrices.
struct MatrixLoad {
  const void* row;
  bool transposed;
  uint32_t* words;
};

// Gives one lane its values of four matrices.
//   all  [32]  a pointer to the MatrixLoad of each lane
void LoadForLane(const uint64_t* all, unsigned lane) {
  const auto brought = [&](unsigned other) {
    return reinterpret_cast<const MatrixLoad*>(static_cast<uintptr_t>(all[other]));
  };
  const MatrixLoad& mine = *brought(lane);
  const unsigned g = lane / 4;
  const unsigned t = lane % 4;
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    const auto at = [&](unsigned row, unsigned column) {
      uint16_t value = 0;
      std::memcpy(&value,
                  static_cast<const char*>(brought(matrix * 8 + row)->row) + 2 * size_t{column}, 2);
      return uint32_t{value};
    };
    const uint32_t low = mine.transposed ? at(2 * t, g) : at(g, 2 * t);
    const uint32_t high = mine.transposed ? at(2 * t + 1, g) : at(g, 2 * t + 1);
    mine.words[matrix] = low | high << 16;
  }
}

}  // namespace

thread_local constinit const Place* place = nullptr;

void FailOutsideOfAKernel() { Fail("device code runs outside of a kernel"); }

void Run(Extent grid, Extent block, size_t shared_bytes, uint64_t seed,
         const std::function<void()>& kernel) {
  if (block.count() == 0 || block.count() > Crew::kMostMembers)
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

const Index& BlockIndex() { return Running().index(); }
const Extent& BlockExtent() { return Running().extent(); }
const Extent& GridExtent() { return Running().grid(); }
void* SharedMemory() { return Running().shared(); }

void SyncThreads() { Running().Barrier(false); }
int SyncThreadsCount(bool predicate) { return Running().Barrier(predicate); }

uint64_t Exchange(uint32_t mask, uint64_t value, int source) {
  const bool given =
      source >= 0 && source < static_cast<int>(kWarpSize) && (mask >> source & 1) != 0;
  return Running().Meet(mask, value, ExchangeValues,
                        [&](const uint64_t* values) { return given ? values[source] : value; });
}

uint64_t Combine(uint64_t value, void (*combine)(uint64_t* values)) {
  const auto lane = static_cast<unsigned>(Lane());
  return Running().Meet(kAllLanes, value, combine,
                        [lane](const uint64_t* values) { return values[lane]; });
}

void MultiplyFragments(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&d)[4]) {
  Fragments mine{a, b, d};
  Combine(reinterpret_cast<uintptr_t>(&mine), [](uint64_t* all) {
    for (unsigned lane = 0; lane < kWarpSize; ++lane) MultiplyForLane(all, lane);
  });
}

void LoadMatrices(const void* row, bool transposed, uint32_t (&words)[4]) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) Fail("a row of a matrix is not aligned");
  MatrixLoad mine{row, transposed, words};
  Combine(reinterpret_cast<uintptr_t>(&mine), [](uint64_t* all) {
    for (unsigned lane = 0; lane < kWarpSize; ++lane) LoadForLane(all, lane);
  });
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
  std::vector<std::vector<Copy>>& groups = Running().current().copy_groups;
  while (groups.size() > left) {
    for (const Copy& copy : groups.front()) Do(copy);
    groups.erase(groups.begin());
  }
}

uint32_t Ballot(uint32_t mask, bool predicate) {
  return Running().Meet(mask, predicate ? 1 : 0, CollectBallot, [mask](const uint64_t* values) {
    uint32_t bits = 0;
    for (unsigned lane = 0; lane < kWarpSize; ++lane) {
      if ((mask >> lane & 1) != 0 && values[lane] != 0) bits |= 1u << lane;
    }
    return bits;
  });
}

}  // namespace simt
