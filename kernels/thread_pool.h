// Threads for the kernels of one worker process.
#ifndef TANDEM_KERNELS_THREAD_POOL_H_
#define TANDEM_KERNELS_THREAD_POOL_H_

#include <cstdint>
#include <memory>

namespace tandem {

// Non-owning reference to a callable `void(int64_t task)`. The callable must outlive the call that
// the reference is passed to.
class TaskRef {
 public:
  template <typename F>
  TaskRef(const F& f)  // NOLINT(google-explicit-constructor): a lambda at the call is the point
      : object_(&f),
        call_([](const void* o, int64_t task) { (*static_cast<const F*>(o))(task); }) {}
  void operator()(int64_t task) const { call_(object_, task); }

 private:
  const void* object_;
  void (*call_)(const void*, int64_t);
};

// The calling thread and `num_threads - 1` helpers share the tasks of one ParallelFor. A result
// does not depend on which thread runs a task: every task writes its own outputs and has its own
// order of sums. After a ParallelFor the helpers spin for some microseconds, because the next
// ParallelFor of a forward pass follows at once. Then they sleep, and an idle pool uses no CPU. One
// ParallelFor runs at a time. The pool is not re-entrant.
class ThreadPool {
 public:
  // num_threads >= 1; 1 runs everything in the caller.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  // Calls task(0) … task(num_tasks - 1), each once, and returns when all have returned.
  void ParallelFor(int64_t num_tasks, TaskRef task);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_THREAD_POOL_H_
