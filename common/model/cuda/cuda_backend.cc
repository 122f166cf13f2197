#include "common/model/cuda/cuda_backend.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/rope_table.h"
#include "kernels/attention.h"
#include "kernels/embedding.h"
#include "kernels/rms_norm.h"
#include "kernels/swiglu.h"

namespace tandem {
namespace {

// Bytes of attention's partial softmaxes. About 80 rows of a 3B model take these at 8,192 tokens.
constexpr size_t kPartialBytes = size_t{128} << 20;

size_t PartialRows(const ModelDescription& model, size_t table_stride) {
  const size_t num_heads = model.attention.num_heads;
  const size_t floats_per_block = model.attention.head_size + 2;
  // One row at the longest context must have room.
  const size_t rows =
      std::max(num_heads * table_stride, kPartialBytes / sizeof(float) / floats_per_block);
  return std::min(rows, num_heads * table_stride * CudaBackend::kMaxBlockRows);
}

// Returns the ends of the blocks of a pass. Any item may be cut anywhere.
std::vector<size_t> CutBlocks(const ForwardPlan& plan) {
  std::vector<size_t> ends;
  for (size_t begin = 0; begin < plan.rows();) {
    size_t end = std::min(begin + CudaBackend::kMaxBlockRows, plan.rows());
    if (plan.NumLogits(begin, end) > CudaBackend::kMaxLogitsRows) {
      end = begin + CudaBackend::kMaxLogitsRows;
    }
    ends.push_back(end);
    begin = end;
  }
  return ends;
}

// Returns the number of rows on the longest path of an item's tree. The plan holds the item's rows
// from `first_row` on.
size_t LongestPath(const ForwardPlan& plan, const ForwardItem& item, size_t first_row) {
  if (item.parents.empty()) return 0;
  const auto begin = plan.positions().begin() + static_cast<ptrdiff_t>(first_row);
  const int32_t last = *std::max_element(begin + static_cast<ptrdiff_t>(item.tree_begin()),
                                         begin + static_cast<ptrdiff_t>(item.token_ids.size()));
  return static_cast<size_t>(last) + 1 - item.cache->length() - item.tree_begin();
}

}  // namespace

CudaBackend::CudaBackend(const ModelDescription* model, const CudaWeights* weights,
                         const Options& options)
    : model_(*model),
      weights_(*weights),
      options_(options),
      table_stride_((options.max_context + kPageRows - 1) / kPageRows),
      logits_stride_((model->vocabulary_size + 3) / 4 * 4),
      partial_rows_(PartialRows(*model, table_stride_)),
      numbers_({.max_rows = kMaxBlockRows,
                .table_stride = table_stride_,
                .num_heads = model->attention.num_heads,
                .partial_rows = partial_rows_}),
      graphs_(options.on_no_graphs) {}

absl::Status CudaBackend::Start(const DeviceStream* stream) {
  stream_ = stream;
  TANDEM_RETURN_IF_ERROR(numbers_.Start(stream));
  RopeTable table(model_);
  table.Reserve(options_.max_context);
  // The source of the copy must outlive the stream even if a later call fails.
  host_logits_.assign(table.data(),
                      table.data() + options_.max_context * model_.attention.head_size);
  TANDEM_RETURN_IF_ERROR(
      stream_->Copy(scratch_.rope_table, host_logits_.data(), host_logits_.size() * sizeof(float)));
  TANDEM_RETURN_IF_ERROR(stream_->Wait());
  std::vector<float>().swap(host_logits_);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<size_t>> CudaBackend::BeginPass(const ForwardPlan& plan) {
  size_t first_row = 0;
  for (size_t i = 0; i < plan.items().size(); ++i) {
    const ForwardItem& item = plan.items()[i];
    const size_t rows = item.token_ids.size();
    if (const size_t longest = LongestPath(plan, item, first_row); longest > kMaxDraftDepth) {
      return InvalidArgument(absl::StrCat("forward pass: item ", i, " has a tree with a path of ",
                                          longest, " rows, at most ", kMaxDraftDepth));
    }
    first_row += rows;
    if (item.cache->length() + rows > options_.max_context) {
      return InvalidArgument(absl::StrCat("forward pass: item ", i, " reaches row ",
                                          item.cache->length() + rows, " of ",
                                          options_.max_context));
    }
  }
  if (ends_.logits_to_host) {
    host_logits_.resize(plan.num_logits() * model_.vocabulary_size);
  } else if (plan.num_logits() > kMaxLogitsRows) {
    return InvalidArgument(absl::StrCat("forward pass: ", plan.num_logits(),
                                        " rows of logits, at most ", kMaxLogitsRows));
  }
  plan_ = &plan;
  std::vector<size_t> ends = CutBlocks(plan);
  num_blocks_ = ends.size();
  return ends;
}

absl::Status CudaBackend::Prepare(const RowBlock& block) {
  block_ = block;
  TANDEM_RETURN_IF_ERROR(numbers_.Send(*plan_, block, &shape_));
  shape_.wants_logits = {};
  for (size_t row = 0; row < block.rows(); ++row) {
    if (plan_->wants_logits(block.begin + row)) shape_.wants_logits.Add(row);
  }
  // If logits go to the host, the logits of each block replace those of the block before.
  shape_.logits_row = ends_.logits_to_host ? 0 : block.logits_row;
  shape_.token_ids =
      ends_.token_ids == nullptr ? numbers_.token_ids() : ends_.token_ids + block.begin;
  is_graph_ = CanBeGraph();
  if (is_graph_) {
    AttentionChunk& chunk = shape_.chunks.front();
    const size_t room = partial_rows_ / (block.rows() * model_.attention.num_heads);
    chunk.max_blocks = PassGraphs::RoundBlocks(chunk.max_blocks, std::min(room, table_stride_));
  }
  progress_.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

bool CudaBackend::CanBeGraph() const {
  return options_.use_graphs && shape_.rows <= PassGraphs::kMaxRows && num_blocks_ == 1 &&
         shape_.chunks.size() == 1;
}

absl::Status CudaBackend::Execute(absl::FunctionRef<absl::Status()> steps) {
  TANDEM_RETURN_IF_ERROR(is_graph_ ? graphs_.Run(shape_, *stream_, steps) : steps());
  return ends_.logits_to_host ? FetchLogits() : absl::OkStatus();
}

absl::Status CudaBackend::FetchLogits() {
  const size_t size = model_.vocabulary_size;
  for (size_t row = 0; row < block_.num_logits; ++row) {
    TANDEM_RETURN_IF_ERROR(stream_->Copy(host_logits_.data() + (block_.logits_row + row) * size,
                                         scratch_.logits + row * logits_stride_,
                                         size * sizeof(float)));
  }
  return stream_->Wait();
}

DeviceLogits CudaBackend::device_logits() const {
  return {scratch_.logits, logits_stride_, plan_->num_logits()};
}

LogitsView CudaBackend::host_logits() const {
  return {host_logits_.data(), model_.vocabulary_size, plan_->num_logits()};
}

absl::Status CudaBackend::Embed() {
  live_rows_ = shape_.rows;
  hidden_ = scratch_.hidden;
  mixed_ = &scratch_.mixed;
  return tandem::Embed({.table = weights_.embedding.weight,
                        .dtype = weights_.embedding.dtype,
                        .size = model_.hidden_size,
                        .ids = shape_.token_ids,
                        .rows = live_rows_,
                        .out = hidden_,
                        .out_stride = model_.hidden_size},
                       stream_->get());
}

absl::Status CudaBackend::Qkv(size_t layer) {
  const CudaLayerWeights& weights = weights_.layers[layer];
  TANDEM_RETURN_IF_ERROR(Norm(weights.attention_norm, weights.qkv));
  return Product(weights.qkv, scratch_.normed, scratch_.qkv, model_.attention.qkv_floats());
}

absl::Status CudaBackend::Attend(size_t layer) {
  const AttentionDescription& attention = model_.attention;
  const size_t stride = attention.qkv_floats();
  float* const keys = scratch_.qkv + attention.query_floats();
  if (attention.has_head_norms) {
    const CudaLayerWeights& weights = weights_.layers[layer];
    TANDEM_RETURN_IF_ERROR(NormHeads(weights.query_norm, scratch_.qkv, attention.num_heads));
    TANDEM_RETURN_IF_ERROR(NormHeads(weights.key_norm, keys, attention.num_kv_heads));
  }
  const DeviceKv kv = kv_->Layer(layer);
  // All rows are stored before any row attends, because a chunk sees rows of the chunks before it.
  for (const AttentionChunk& chunk : shape_.chunks) {
    TANDEM_RETURN_IF_ERROR(RopeAndStoreKv({.kv = kv,
                                           .rows = numbers_.RowsOf(chunk),
                                           .positions = numbers_.positions() + chunk.first_row,
                                           .table = scratch_.rope_table,
                                           .qkv = scratch_.qkv + chunk.first_row * stride,
                                           .qkv_stride = stride,
                                           .num_heads = attention.num_heads},
                                          stream_->get()));
  }
  const Bf16Rows out_bf16 = scratch_.mixed.For(weights_.layers[layer].attention_output.dtype);
  for (const AttentionChunk& chunk : shape_.chunks) {
    TANDEM_RETURN_IF_ERROR(
        Attention({.kv = kv,
                   .rows = numbers_.RowsOf(chunk),
                   .num_heads = attention.num_heads,
                   .scale = 1.0f / std::sqrt(static_cast<float>(attention.head_size)),
                   .queries = scratch_.qkv + chunk.first_row * stride,
                   .queries_stride = stride,
                   .max_blocks = chunk.max_blocks,
                   .partial_values = scratch_.partial_values,
                   .partial_maxima = scratch_.partial_maxima,
                   .partial_sums = scratch_.partial_sums,
                   .out = scratch_.mixed.floats + chunk.first_row * attention.query_floats(),
                   .out_stride = attention.query_floats(),
                   .out_bf16 = out_bf16.FromRow(chunk.first_row)},
                  stream_->get()));
  }
  return absl::OkStatus();
}

absl::Status CudaBackend::KeepRows() {
  const size_t num_kept = shape_.wants_logits.size();
  if (num_kept == live_rows_) return absl::OkStatus();
  size_t kept = 0;
  for (size_t row = 0; row < shape_.rows;) {
    size_t run = 0;
    while (row + run < shape_.rows && shape_.wants_logits.Has(row + run)) ++run;
    if (run > 0) TANDEM_RETURN_IF_ERROR(KeepRun(row, run, kept));
    kept += run;
    row += std::max<size_t>(run, 1);
  }
  live_rows_ = num_kept;
  hidden_ = scratch_.kept_hidden;
  mixed_ = &scratch_.kept_mixed;
  return absl::OkStatus();
}

absl::Status CudaBackend::KeepRun(size_t row, size_t count, size_t to) {
  const auto gather = [&](auto* kept, const auto* from, size_t size) {
    return stream_->Copy(kept + to * size, from + row * size, count * size * sizeof(*from));
  };
  TANDEM_RETURN_IF_ERROR(gather(scratch_.kept_hidden, scratch_.hidden, model_.hidden_size));
  if (weights_.layers.back().attention_output.dtype != DType::kBF16) {
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

absl::Status CudaBackend::Output(size_t layer) {
  return Product(weights_.layers[layer].attention_output, *mixed_, hidden_, model_.hidden_size,
                 /*add_to_out=*/true);
}

absl::Status CudaBackend::Mlp(size_t layer) {
  const CudaLayerWeights& weights = weights_.layers[layer];
  const size_t inner = model_.mlp.inner_size;
  // As floats, the result takes the place of the gate.
  const ProductRows rows = {scratch_.gate_up, 2 * inner, scratch_.inner};
  TANDEM_RETURN_IF_ERROR(Norm(weights.mlp_norm, weights.gate_up));
  TANDEM_RETURN_IF_ERROR(Product(weights.gate_up, scratch_.normed, scratch_.gate_up, 2 * inner));
  TANDEM_RETURN_IF_ERROR(SwiGlu({.gate = scratch_.gate_up,
                                 .gate_stride = 2 * inner,
                                 .up = scratch_.gate_up + inner,
                                 .up_stride = 2 * inner,
                                 .rows = live_rows_,
                                 .size = inner,
                                 .out_bf16 = rows.For(weights.down.dtype)},
                                stream_->get()));
  return Product(weights.down, rows, hidden_, model_.hidden_size, /*add_to_out=*/true);
}

absl::Status CudaBackend::Logits() {
  TANDEM_RETURN_IF_ERROR(Norm(weights_.final_norm, weights_.output));
  if (options_.keeps_features) TANDEM_RETURN_IF_ERROR(KeepFeatures());
  return Product(weights_.output, scratch_.normed,
                 scratch_.logits + shape_.logits_row * logits_stride_, logits_stride_);
}

absl::Status CudaBackend::KeepFeatures() {
  // A graph serves passes of one block, whose rows of logits begin at 0.
  const size_t begin = std::min(block_.logits_row, kMaxLogitsRows);
  return RmsNorm({.x = hidden_,
                  .x_stride = model_.hidden_size,
                  .rows = std::min(live_rows_, kMaxLogitsRows - begin),
                  .size = model_.hidden_size,
                  .weight = weights_.final_norm,
                  .eps = static_cast<float>(model_.norm_eps),
                  .out = scratch_.features + begin * model_.hidden_size,
                  .out_stride = model_.hidden_size},
                 stream_->get());
}

absl::Status CudaBackend::NormHeads(const float* weight, float* heads, size_t num_heads) {
  return RmsNorm({.x = heads,
                  .x_stride = model_.attention.qkv_floats(),
                  .rows = live_rows_,
                  .num_heads = num_heads,
                  .size = model_.attention.head_size,
                  .weight = weight,
                  .eps = static_cast<float>(model_.norm_eps),
                  .out = heads,
                  .out_stride = model_.attention.qkv_floats()},
                 stream_->get());
}

absl::Status CudaBackend::Norm(const float* weight, const CudaLinear& linear) {
  return RmsNorm({.x = hidden_,
                  .x_stride = model_.hidden_size,
                  .rows = live_rows_,
                  .size = model_.hidden_size,
                  .weight = weight,
                  .eps = static_cast<float>(model_.norm_eps),
                  .out = scratch_.normed.floats,
                  .out_stride = model_.hidden_size,
                  .out_bf16 = scratch_.normed.For(linear.dtype)},
                 stream_->get());
}

absl::Status CudaBackend::Product(const CudaLinear& linear, const ProductRows& x, float* out,
                                  size_t out_stride, bool add_to_out) {
  return MultiplyRows(linear, x, live_rows_, {out, out_stride, add_to_out}, stream_->get());
}

}  // namespace tandem
