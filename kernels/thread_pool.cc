#include "kernels/thread_pool.h"

#include <atomic>
#include <cassert>
#include <chrono>
#include <thread>
#include <vector>

namespace tandem {
namespace {

// Time that a helper spins. It is longer than the gap between two parallel regions of a forward
// pass, and short compared with a scheduler's time slice.
constexpr std::chrono::microseconds kSpin{40};

inline void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits while `value` is `old`. Polls for at most kSpin, then sleeps until it is notified.
template <typename T>
void WaitWhileEqual(const std::atomic<T>& value, T old) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace

// A job is claimed task by task from one word, (generation << 32) | tasks left, by compare and
// swap. A helper that slept or lost the CPU while its job ended fails the swap. So a helper never
// touches a later job, and the caller never waits for a helper that has not begun a task.
struct ThreadPool::State {
  alignas(64) std::atomic<uint64_t> claim{0};
  // The current job. Only a thread that holds an unfinished task of the job reads these fields.
  const TaskRef* task = nullptr;
  uint32_t num_tasks = 0;
  // The futexes: helpers sleep on `generation`, the caller on `num_unfinished`.
  alignas(64) std::atomic<uint32_t> generation{0};
  std::atomic<bool> stopping{false};
  alignas(64) std::atomic<uint32_t> num_unfinished{0};
  std::vector<std::thread> helpers;

  // Runs tasks of job `job` until none is left to claim.
  void Work(uint32_t job) {
    uint64_t seen = claim.load(std::memory_order_acquire);
    while (static_cast<uint32_t>(seen >> 32) == job && static_cast<uint32_t>(seen) != 0) {
      if (!claim.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
        continue;
      }
      (*task)(num_tasks - static_cast<uint32_t>(seen));
      if (num_unfinished.fetch_sub(1, std::memory_order_acq_rel) == 1) num_unfinished.notify_one();
      seen = claim.load(std::memory_order_acquire);
    }
  }

  void Help() {
    uint32_t job = 0;
    while (!stopping.load(std::memory_order_acquire)) {
      WaitWhileEqual(generation, job);
      job = generation.load(std::memory_order_acquire);
      Work(job);
    }
  }
};

ThreadPool::ThreadPool(int num_threads) : state_(std::make_unique<State>()) {
  assert(num_threads >= 1);
  for (int i = 1; i < num_threads; ++i) {
    state_->helpers.emplace_back([state = state_.get()] { state->Help(); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stopping.store(true, std::memory_order_release);
  state_->generation.fetch_add(1, std::memory_order_acq_rel);
  state_->generation.notify_all();
  for (std::thread& helper : state_->helpers) helper.join();
}

int ThreadPool::num_threads() const { return static_cast<int>(state_->helpers.size()) + 1; }

void ThreadPool::ParallelFor(int64_t num_tasks, TaskRef task) {
  assert(num_tasks <= INT64_C(0xffffffff));
  State& state = *state_;
  if (num_tasks <= 1 || state.helpers.empty()) {
    for (int64_t i = 0; i < num_tasks; ++i) task(i);
    return;
  }
  const uint32_t job = state.generation.load(std::memory_order_relaxed) + 1;
  const auto count = static_cast<uint32_t>(num_tasks);
  state.task = &task;
  state.num_tasks = count;
  state.num_unfinished.store(count, std::memory_order_relaxed);
  state.claim.store(static_cast<uint64_t>(job) << 32 | count, std::memory_order_release);
  state.generation.store(job, std::memory_order_seq_cst);
  state.generation.notify_all();  // a system call only if a helper sleeps
  state.Work(job);
  for (uint32_t left; (left = state.num_unfinished.load(std::memory_order_acquire)) != 0;) {
    WaitWhileEqual(state.num_unfinished, left);
  }
}

}  // namespace tandem
