#include "common/model/cuda/cuda_layer.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "common/model/rope_table.h"
#include "common/status.h"
#include "kernels/matmul_bf16/matmul_bf16_cuda.h"
#include "kernels/rms_norm.h"
#include "kernels/swiglu.h"

namespace tandem {
namespace {

size_t PartialRows(const ModelDescription& model, const CudaLayer::Options& options,
                   size_t table_stride) {
  const size_t num_heads = model.attention.num_heads;
  const size_t floats_per_block = model.attention.head_size + 2;
  // One row at the longest context must have room.
  const size_t rows =
      std::max(num_heads * table_stride, options.partial_bytes / sizeof(float) / floats_per_block);
  return std::min(rows, num_heads * table_stride * options.max_rows);
}

}  // namespace

CudaLayer::CudaLayer(const ModelDescription* model, const Options& options)
    : model_(*model),
      options_(options),
      table_stride_((options.max_context + kKeyBlock - 1) / kKeyBlock),
      partial_rows_(PartialRows(*model, options, table_stride_)) {}

RowNumbers::Sizes CudaLayer::number_sizes() const {
  return {.max_rows = options_.max_rows,
          .table_stride = table_stride_,
          .num_heads = model_.attention.num_heads,
          .partial_rows = partial_rows_};
}

absl::Status CudaLayer::LayOut(const MemoryTaker& take) {
  const size_t rows = options_.max_rows;
  const int num_parts = NumBf16Parts(options_.exact_activations);
  const size_t hidden = rows * model_.hidden_size;
  const size_t mixed = model_.attention.query_floats();
  const size_t head_size = model_.attention.head_size;
  TANDEM_RETURN_IF_ERROR(take(&scratch_.hidden, hidden, "hidden rows"));
  TANDEM_RETURN_IF_ERROR(
      LayOutRows(&scratch_.normed, rows, model_.hidden_size, num_parts, "normalized rows", take));
  TANDEM_RETURN_IF_ERROR(
      take(&scratch_.qkv, rows * model_.attention.qkv_floats(), "queries, keys and values"));
  TANDEM_RETURN_IF_ERROR(
      LayOutRows(&scratch_.mixed, rows, mixed, num_parts, "attention's rows", take));
  if (options_.keeps_rows) {
    TANDEM_RETURN_IF_ERROR(take(&scratch_.kept_hidden, hidden, "hidden rows"));
    TANDEM_RETURN_IF_ERROR(
        LayOutRows(&scratch_.kept_mixed, rows, mixed, num_parts, "attention's rows", take));
  }
  TANDEM_RETURN_IF_ERROR(
      take(&scratch_.gate_up, rows * 2 * model_.mlp.inner_size, "gate and up rows"));
  TANDEM_RETURN_IF_ERROR(LayOutParts(&scratch_.inner, rows, model_.mlp.inner_size, num_parts,
                                     "the MLP's inner rows", take));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.partial_values, partial_rows_ * head_size, "partial sums"));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.partial_maxima, partial_rows_, "partial sums"));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.partial_sums, partial_rows_, "partial sums"));
  return take(&scratch_.rope_table, options_.max_context * head_size, "angles");
}

absl::Status CudaLayer::Start(const DeviceStream* stream) {
  stream_ = stream;
  RopeTable table(model_);
  table.Reserve(options_.max_context);
  const size_t floats = options_.max_context * model_.attention.head_size;
  const absl::Status copied =
      stream_->Copy(scratch_.rope_table, table.data(), floats * sizeof(float));
  // The table must outlive the copy, also after an error.
  absl::Status done = stream_->Wait();
  TANDEM_RETURN_IF_ERROR(copied);
  return done;
}

void CudaLayer::Begin(size_t rows) {
  rows_ = rows;
  hidden_ = scratch_.hidden;
  mixed_ = &scratch_.mixed;
}

absl::Status CudaLayer::Norm(const float* weight, const CudaLinear& linear) {
  return RmsNorm({.x = hidden_,
                  .x_stride = model_.hidden_size,
                  .rows = rows_,
                  .size = model_.hidden_size,
                  .weight = weight,
                  .eps = static_cast<float>(model_.norm_eps),
                  .out = scratch_.normed.floats,
                  .out_stride = model_.hidden_size,
                  .out_bf16 = scratch_.normed.For(linear.dtype)},
                 stream_->get());
}

absl::Status CudaLayer::Qkv(const CudaLayerWeights& weights, const ProductRows& x,
                            const DeviceKv& kv, const RowNumbers& numbers) {
  const AttentionDescription& attention = model_.attention;
  const ProductOutput out = {.data = scratch_.qkv, .stride = attention.qkv_floats()};
  const DeviceRopeAndStoreArgs rope = {.kv = kv,
                                       .rows = numbers.RowsOf({.first_row = 0, .rows = rows_}),
                                       .positions = numbers.positions(),
                                       .table = scratch_.rope_table,
                                       .qkv = out.data,
                                       .qkv_stride = out.stride,
                                       .num_heads = attention.num_heads};
  if (!attention.has_head_norms && weights.qkv.dtype == DType::kBF16 && kv.dtype == DType::kBF16) {
    return MatMulRopeAndStoreKv(ProductArgs(weights.qkv, x, rows_, out), rope, stream_->get());
  }
  TANDEM_RETURN_IF_ERROR(Product(weights.qkv, x, out));
  if (attention.has_head_norms) {
    float* const keys = scratch_.qkv + attention.query_floats();
    TANDEM_RETURN_IF_ERROR(NormHeads(weights.query_norm, scratch_.qkv, attention.num_heads));
    TANDEM_RETURN_IF_ERROR(NormHeads(weights.key_norm, keys, attention.num_kv_heads));
  }
  return RopeAndStoreKv(rope, stream_->get());
}

absl::Status CudaLayer::Attend(const CudaLayerWeights& weights, const DeviceKv& kv,
                               const RowNumbers& numbers, const PassShape& shape,
                               size_t hidden_rows) {
  const AttentionDescription& attention = model_.attention;
  const size_t stride = attention.qkv_floats();
  const Bf16Rows out_bf16 = scratch_.mixed.For(weights.attention_output.dtype);
  const auto args_of = [&](const AttentionChunk& chunk) -> DeviceAttentionArgs {
    return {.kv = kv,
            .rows = numbers.RowsOf(chunk),
            .num_heads = attention.num_heads,
            .hidden_rows = hidden_rows,
            .scale = 1.0f / std::sqrt(static_cast<float>(attention.head_size)),
            .queries = scratch_.qkv + chunk.first_row * stride,
            .queries_stride = stride,
            .max_blocks = chunk.max_blocks,
            .partial_values = scratch_.partial_values,
            .partial_maxima = scratch_.partial_maxima,
            .partial_sums = scratch_.partial_sums,
            .out = scratch_.mixed.floats + chunk.first_row * attention.query_floats(),
            .out_stride = attention.query_floats(),
            .out_bf16 = out_bf16.FromRow(chunk.first_row)};
  };
  if (shape.chunks.size() > 1) {
    DeviceAttentionArgs whole = args_of(shape.whole);
    whole.partial_values = whole.partial_maxima = whole.partial_sums = nullptr;  // too small
    if (!NeedsPartials(whole)) return Attention(whole, stream_->get());
  }
  for (const AttentionChunk& chunk : shape.chunks) {
    TANDEM_RETURN_IF_ERROR(Attention(args_of(chunk), stream_->get()));
  }
  return absl::OkStatus();
}

absl::Status CudaLayer::KeepRows(const RowSet& kept, const CudaLayerWeights& weights) {
  const size_t num_kept = kept.size();
  if (num_kept == rows_) return absl::OkStatus();
  size_t to = 0;
  for (size_t row = 0; row < rows_;) {
    size_t run = 0;
    while (row + run < rows_ && kept.Has(row + run)) ++run;
    if (run > 0) {
      TANDEM_RETURN_IF_ERROR(KeepRun(row, run, to, weights.attention_output.dtype));
    }
    to += run;
    row += std::max<size_t>(run, 1);
  }
  rows_ = num_kept;
  hidden_ = scratch_.kept_hidden;
  mixed_ = &scratch_.kept_mixed;
  return absl::OkStatus();
}

absl::Status CudaLayer::KeepRun(size_t row, size_t count, size_t to, DType output_dtype) {
  const auto gather = [&](auto* kept, const auto* from, size_t size) {
    return stream_->Copy(kept + to * size, from + row * size, count * size * sizeof(*from));
  };
  TANDEM_RETURN_IF_ERROR(gather(scratch_.kept_hidden, scratch_.hidden, model_.hidden_size));
  if (output_dtype != DType::kBF16) {
    return gather(scratch_.kept_mixed.floats, scratch_.mixed.floats,
                  model_.attention.query_floats());
  }
  const Bf16Rows& from = scratch_.mixed.bf16;
  for (int part = 0; part < from.num_parts; ++part) {
    const size_t offset = static_cast<size_t>(part) * from.part_stride;
    TANDEM_RETURN_IF_ERROR(gather(scratch_.kept_mixed.bf16.parts + offset,
                                  std::as_const(from.parts) + offset, from.stride));
  }
  return absl::OkStatus();
}

absl::Status CudaLayer::Output(const CudaLayerWeights& weights) {
  return Product(weights.attention_output, *mixed_,
                 {.data = hidden_, .stride = model_.hidden_size, .is_added = true});
}

absl::Status CudaLayer::Mlp(const CudaLayerWeights& weights) {
  const size_t inner = model_.mlp.inner_size;
  // As floats, the result takes the place of the gate.
  const ProductRows rows = {scratch_.gate_up, 2 * inner, scratch_.inner};
  const ProductOutput gate_up = {.data = scratch_.gate_up, .stride = 2 * inner};
  const Bf16Rows out_bf16 = rows.For(weights.down.dtype);
  TANDEM_RETURN_IF_ERROR(Norm(weights.mlp_norm, weights.gate_up));
  if (weights.gate_up.dtype == DType::kBF16 && weights.down.dtype == DType::kBF16) {
    TANDEM_RETURN_IF_ERROR(MatMulSwiGlu(
        ProductArgs(weights.gate_up, scratch_.normed, rows_, gate_up), out_bf16, stream_->get()));
  } else {
    TANDEM_RETURN_IF_ERROR(Product(weights.gate_up, scratch_.normed, gate_up));
    TANDEM_RETURN_IF_ERROR(SwiGlu({.gate = gate_up.data,
                                   .gate_stride = gate_up.stride,
                                   .up = gate_up.data + inner,
                                   .up_stride = gate_up.stride,
                                   .rows = rows_,
                                   .size = inner,
                                   .out_bf16 = out_bf16},
                                  stream_->get()));
  }
  return Product(weights.down, rows,
                 {.data = hidden_, .stride = model_.hidden_size, .is_added = true});
}

absl::Status CudaLayer::NormHeads(const float* weight, float* heads, size_t num_heads) {
  return RmsNorm({.x = heads,
                  .x_stride = model_.attention.qkv_floats(),
                  .rows = rows_,
                  .num_heads = num_heads,
                  .size = model_.attention.head_size,
                  .weight = weight,
                  .eps = static_cast<float>(model_.norm_eps),
                  .out = heads,
                  .out_stride = model_.attention.qkv_floats()},
                 stream_->get());
}

absl::Status CudaLayer::Product(const CudaLinear& linear, const ProductRows& x,
                                const ProductOutput& out) {
  return MultiplyRows(linear, x, rows_, out, stream_->get());
}

}  // namespace tandem
