#include "common/model/cpu/cpu_layer.h"

#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"

namespace tandem {

void CpuLayer::Begin(size_t rows) {
  rows_ = rows;
  hidden_.Resize(rows, model_.hidden_size);
  normed_.Resize(rows, model_.hidden_size);
  qkv_.Resize(rows, model_.attention.qkv_floats());
  mixed_.Resize(rows, model_.attention.query_floats());
  gate_up_.Resize(rows, 2 * model_.mlp.inner_size);
}

void CpuLayer::Norm(const std::vector<float>& weight) {
  ForRows(2 * model_.hidden_size, [&](size_t first, size_t last) {
    RmsNorm({.x = hidden_.row(first),
             .x_stride = hidden_.stride(),
             .rows = last - first,
             .size = model_.hidden_size,
             .weight = weight.data(),
             .eps = static_cast<float>(model_.norm_eps),
             .out = normed_.row(first),
             .out_stride = normed_.stride()});
  });
}

void CpuLayer::Qkv(const LayerWeights& weights, ScratchRows& x) {
  const size_t query_floats = model_.attention.query_floats();
  const MatMulArgs products[] = {
      Product(weights.query, x, qkv_), Product(weights.key, x, qkv_, query_floats),
      Product(weights.value, x, qkv_, query_floats + model_.attention.kv_floats())};
  MatMul(products, pool_);
}

void CpuLayer::Attend(const LayerWeights& weights, const int32_t* positions, const float* rope,
                      std::span<AttentionArgs> segments) {
  ForRows(model_.attention.qkv_floats(), [&](size_t first, size_t last) {
    TurnAndStore(weights, positions, rope, segments, first, last);
  });
  size_t row = 0;
  for (AttentionArgs& segment : segments) {
    segment.num_heads = model_.attention.num_heads;
    segment.queries = qkv_.row(row);
    segment.queries_stride = qkv_.stride();
    segment.out = mixed_.row(row);
    segment.out_stride = mixed_.stride();
    row += segment.rows;
  }
  Attention(segments, pool_);
}

void CpuLayer::TurnAndStore(const LayerWeights& weights, const int32_t* positions,
                            const float* rope, std::span<const AttentionArgs> segments,
                            size_t first, size_t last) {
  const AttentionDescription& attention = model_.attention;
  const size_t query_floats = attention.query_floats();
  if (attention.has_head_norms) {
    NormHeads(weights.query_norm, 0, attention.num_heads, first, last);
    NormHeads(weights.key_norm, query_floats, attention.num_kv_heads, first, last);
  }
  // Queries and keys lie side by side, so one call turns both.
  Rope({.x = qkv_.row(first),
        .x_stride = qkv_.stride(),
        .rows = last - first,
        .num_heads = attention.num_heads + attention.num_kv_heads,
        .head_size = attention.head_size,
        .positions = positions + first,
        .table = rope});
  size_t begin = 0;  // the segment's first row
  for (const AttentionArgs& segment : segments) {
    const size_t from = std::max(first, begin);
    const size_t to = std::min(last, begin + segment.rows);
    if (from < to) {
      StoreKv({.kv = segment.kv,
               .first_row = segment.cached_len + segment.first_row + from - begin,
               .rows = to - from,
               .keys = qkv_.row(from) + query_floats,
               .keys_stride = qkv_.stride(),
               .values = qkv_.row(from) + query_floats + attention.kv_floats(),
               .values_stride = qkv_.stride()});
    }
    begin += segment.rows;
  }
}

void CpuLayer::NormHeads(const std::vector<float>& weight, size_t first_float, size_t num_heads,
                         size_t first, size_t last) {
  RmsNorm({.x = qkv_.row(first) + first_float,
           .x_stride = qkv_.stride(),
           .rows = last - first,
           .num_heads = num_heads,
           .size = model_.attention.head_size,
           .weight = weight.data(),
           .eps = static_cast<float>(model_.norm_eps),
           .out = qkv_.row(first) + first_float,
           .out_stride = qkv_.stride()});
}

void CpuLayer::Output(const LayerWeights& weights) {
  MatMulArgs output = Product(weights.attention_output, mixed_, hidden_);
  output.add_to_out = true;
  MatMul({&output, 1}, pool_);
}

void CpuLayer::Mlp(const LayerWeights& weights) {
  const size_t inner = model_.mlp.inner_size;
  Norm(weights.mlp_norm);
  const MatMulArgs gate_up[] = {Product(weights.gate, normed_, gate_up_),
                                Product(weights.up, normed_, gate_up_, inner)};
  MatMul(gate_up, pool_);
  // An exponential costs about eight plain operations.
  ForRows(8 * inner, [&](size_t first, size_t last) {
    SwiGlu({.gate = gate_up_.row(first),
            .gate_stride = gate_up_.stride(),
            .up = gate_up_.row(first) + inner,
            .up_stride = gate_up_.stride(),
            .rows = last - first,
            .size = inner});
  });
  MatMulArgs down = Product(weights.down, gate_up_, hidden_);
  down.add_to_out = true;
  MatMul({&down, 1}, pool_);
}

MatMulArgs CpuLayer::Product(const Linear& linear, ScratchRows& x, ScratchRows& out,
                             size_t out_column) const {
  return linear.Product(x.row(0), x.stride(), rows_, out.row(0) + out_column, out.stride());
}

}  // namespace tandem
