// How a call of MatMul on the CPU is cut. The rows of x are cut into blocks, a block of one product
// is a job, and the weight rows of a job are cut into tasks.
#ifndef TANDEM_KERNELS_SUPPORT_PRODUCT_JOBS_H_
#define TANDEM_KERNELS_SUPPORT_PRODUCT_JOBS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/matmul.h"
#include "kernels/thread_pool.h"

namespace tandem {

inline size_t CeilDiv(size_t a, size_t b) { return (a + b - 1) / b; }

// Returns part `index` of `total`, which is cut into `parts` parts. Their sizes differ by at most
// one, and larger parts come first.
struct Part {
  size_t begin;
  size_t size;
};
inline Part PartOf(size_t total, size_t parts, size_t index) {
  const size_t small = total / parts;
  const size_t larger = total % parts;
  return {index * small + std::min(index, larger), small + (index < larger ? 1 : 0)};
}

// A block of rows of one product, and how its weight rows are cut into tasks.
struct ProductJob {
  const MatMulArgs* args;
  size_t first_row;
  size_t rows;
  size_t packed_offset = 0;  // where its packed x begins, in the caller's unit
  bool packs_x = true;       // false: an earlier product of the call has the same packed x
  size_t rows_per_task = 1;  // weight rows
  int64_t first_task = 0;
};

// Fills `jobs` with row block `block` of every product that has one. Two products with the same x
// share the packed x if same_packing(args, args). packed_size(job) is the size of a job's packed x.
// Returns the size of all packed x.
template <class SamePacking, class PackedSize>
size_t PlanBlock(std::span<const MatMulArgs> products, size_t block,
                 const SamePacking& same_packing, const PackedSize& packed_size,
                 std::vector<ProductJob>& jobs) {
  // Largest number of rows of x that are packed at a time. It bounds the scratch memory.
  constexpr size_t kBlockRows = 512;
  jobs.clear();
  size_t packed = 0;
  for (const MatMulArgs& args : products) {
    const size_t blocks = CeilDiv(args.rows, kBlockRows);
    if (block >= blocks || args.out_features == 0) continue;
    const Part part = PartOf(args.rows, blocks, block);
    const auto same_x = std::find_if(jobs.begin(), jobs.end(), [&](const ProductJob& job) {
      return job.args->x == args.x && job.args->x_stride == args.x_stride &&
             job.args->in_features == args.in_features && job.rows == part.size &&
             job.first_row == part.begin && same_packing(*job.args, args);
    });
    ProductJob job{.args = &args, .first_row = part.begin, .rows = part.size};
    job.packs_x = same_x == jobs.end();
    job.packed_offset = job.packs_x ? packed : same_x->packed_offset;
    if (job.packs_x) packed += packed_size(job);
    jobs.push_back(job);
  }
  return packed;
}

// Returns how many tasks of a call are enough to keep `num_threads` threads equally busy.
inline size_t WantedTasks(int num_threads) { return 16 * static_cast<size_t>(num_threads); }

// Returns the size of all weights of a product.
inline size_t WeightBytes(const MatMulArgs& args) {
  return args.out_features * args.in_features * SizeOf(args.dtype);
}

// Returns how many bytes of weights a task reads if reading takes its time. The least hides the
// cost of claiming the task.
inline size_t BytesPerTask(std::span<const ProductJob> jobs, int num_threads) {
  constexpr size_t kMinTaskBytes = 64 << 10;
  constexpr size_t kMaxTaskBytes = 1 << 20;
  size_t bytes = 0;
  for (const ProductJob& job : jobs) bytes += WeightBytes(*job.args);
  return std::clamp(bytes / WantedTasks(num_threads), kMinTaskBytes, kMaxTaskBytes);
}

// Calls run(job, begin, end) for every task of all jobs: weight rows [begin, end) of the job.
template <class Run>
void RunTasks(std::span<ProductJob> jobs, ThreadPool& pool, const Run& run) {
  int64_t tasks = 0;
  for (ProductJob& job : jobs) {
    job.first_task = tasks;
    tasks += static_cast<int64_t>(CeilDiv(job.args->out_features, job.rows_per_task));
  }
  pool.ParallelFor(tasks, [&](int64_t task) {
    const auto after =
        std::upper_bound(jobs.begin(), jobs.end(), task,
                         [](int64_t t, const ProductJob& job) { return t < job.first_task; });
    const ProductJob& job = *(after - 1);
    const size_t begin = static_cast<size_t>(task - job.first_task) * job.rows_per_task;
    run(job, begin, std::min(begin + job.rows_per_task, job.args->out_features));
  });
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_SUPPORT_PRODUCT_JOBS_H_
