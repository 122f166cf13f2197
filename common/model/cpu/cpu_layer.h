// The operations of a decoder's layer on the CPU, for rows of any sequences.
#ifndef TANDEM_COMMON_MODEL_CPU_LAYER_H_
#define TANDEM_COMMON_MODEL_CPU_LAYER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/model/linear.h"
#include "common/model/model_description.h"
#include "common/model/model_weights.h"
#include "common/model/scratch_rows.h"
#include "kernels/attention.h"
#include "kernels/matmul.h"
#include "kernels/thread_pool.h"

namespace tandem {

// Holds the rows that go through a layer together, and computes each step when it is called, with
// all threads of a pool. Everything is F32 except the matrices.
class CpuLayer {
 public:
  // Both arguments must outlive this object.
  CpuLayer(const ModelDescription* model, ThreadPool* pool) : model_(*model), pool_(*pool) {}

  // Makes room for rows. Their content is undefined.
  void Begin(size_t rows);
  // From now on, only the first `rows` rows are computed.
  void Shrink(size_t rows) { rows_ = rows; }
  size_t rows() const { return rows_; }

  ScratchRows& hidden() { return hidden_; }  // [rows, hidden] the residual stream
  ScratchRows& normed() { return normed_; }  // [rows, hidden] result of Norm
  ScratchRows& mixed() { return mixed_; }    // [rows, heads * head_size] result of attention

  // normed() = norm of hidden().
  void Norm(const std::vector<float>& weight);
  // Queries, keys and values = products of the rows of `x`.
  void Qkv(const LayerWeights& weights, ScratchRows& x);
  // Normalizes heads if the model has head norms, turns queries and keys, stores keys and values,
  // and attends. `segments` covers the rows in their order; its queries and outputs are filled in.
  //   positions  [rows]                  i32
  //   rope       as RopeTable::data
  void Attend(const LayerWeights& weights, const int32_t* positions, const float* rope,
              std::span<AttentionArgs> segments);
  // hidden() += result of attention, times the output matrix, plus bias.
  void Output(const LayerWeights& weights);
  // hidden() += MLP of its norm.
  void Mlp(const LayerWeights& weights);

  // Returns the product of the rows of `x`. Its result goes to the columns of `out` from
  // `out_column` on.
  MatMulArgs Product(const Linear& linear, ScratchRows& x, ScratchRows& out,
                     size_t out_column = 0) const;
  // Calls run(begin, end) for pieces of [0, rows()). The calls run in parallel if the work is large
  // enough.
  template <typename F>
  void ForRows(size_t floats_per_row, const F& run);

 private:
  // Normalizes heads, turns queries and keys, and stores keys and values, for rows [first, last).
  void TurnAndStore(const LayerWeights& weights, const int32_t* positions, const float* rope,
                    std::span<const AttentionArgs> segments, size_t first, size_t last);
  void NormHeads(const std::vector<float>& weight, size_t first_float, size_t num_heads,
                 size_t first, size_t last);

  const ModelDescription& model_;
  ThreadPool& pool_;
  size_t rows_ = 0;
  ScratchRows hidden_;
  ScratchRows normed_;
  ScratchRows qkv_;  // [rows, (heads + 2 * KV heads) * head_size]
  ScratchRows mixed_;
  ScratchRows gate_up_;  // [rows, 2 * inner]
};

template <typename F>
void CpuLayer::ForRows(size_t floats_per_row, const F& run) {
  // A task is tens of microseconds of work. Waking a helper thread costs less.
  constexpr size_t kFloatsPerTask = size_t{1} << 16;
  const size_t rows_per_task = std::max<size_t>(1, kFloatsPerTask / floats_per_row);
  if (rows_ <= rows_per_task) {
    run(size_t{0}, rows_);
    return;
  }
  const size_t tasks = (rows_ + rows_per_task - 1) / rows_per_task;
  pool_.ParallelFor(static_cast<int64_t>(tasks), [&](int64_t task) {
    const size_t first = static_cast<size_t>(task) * rows_per_task;
    run(first, std::min(rows_, first + rows_per_task));
  });
}

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CPU_LAYER_H_
