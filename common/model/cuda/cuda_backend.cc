#include "common/model/cuda/cuda_backend.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "kernels/embedding.h"
#include "kernels/rms_norm.h"

namespace tandem {
namespace {

// Bytes of attention's partial softmaxes. About 80 rows of a 3B model take these at 8,192 tokens.
constexpr size_t kPartialBytes = size_t{128} << 20;

// Returns the ends of the blocks of a pass. Any item may be cut anywhere.
std::vector<size_t> CutBlocks(const ForwardPlan& plan, size_t max_rows) {
  std::vector<size_t> ends;
  for (size_t begin = 0; begin < plan.rows();) {
    size_t end = std::min(begin + max_rows, plan.rows());
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
      logits_stride_((model->vocabulary_size + 3) / 4 * 4),
      layer_(model, {.max_rows = options.max_block_rows,
                     .max_context = options.max_context,
                     .exact_activations = options.exact_activations,
                     .keeps_rows = true,
                     .partial_bytes = kPartialBytes}),
      numbers_(layer_.number_sizes()),
      graphs_(options.on_no_graphs) {}

absl::Status CudaBackend::LayOut(const MemoryTaker& take) {
  TANDEM_RETURN_IF_ERROR(numbers_.LayOut(take));
  TANDEM_RETURN_IF_ERROR(layer_.LayOut(take));
  TANDEM_RETURN_IF_ERROR(take(&logits_, kMaxLogitsRows * logits_stride_, "logits"));
  if (!keeps_features_) return absl::OkStatus();
  return take(&features_, kMaxLogitsRows * model_.hidden_size, "features");
}

absl::Status CudaBackend::Start(const DeviceStream* stream) {
  stream_ = stream;
  TANDEM_RETURN_IF_ERROR(numbers_.Start(stream));
  return layer_.Start(stream);
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
  std::vector<size_t> ends = CutBlocks(plan, options_.max_block_rows);
  num_blocks_ = ends.size();
  return ends;
}

absl::Status CudaBackend::Prepare(const RowBlock& block) {
  block_ = block;
  plan_->FindSegments(block.begin, block.end, &segments_);
  sequences_.clear();
  for (const PlanSegment& segment : segments_) {
    const ForwardItem& item = plan_->items()[segment.item];
    sequences_.push_back({.cache = item.cache,
                          .length = item.cache->length(),
                          .first_row = segment.first_row,
                          .rows = segment.rows,
                          .tree_begin = item.tree_begin(),
                          .parents = item.parents});
  }
  TANDEM_RETURN_IF_ERROR(
      numbers_.Send({.token_ids = std::span(plan_->token_ids()).subspan(block.begin, block.rows()),
                     .positions = std::span(plan_->positions()).subspan(block.begin, block.rows()),
                     .sequences = sequences_},
                    &shape_));
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
    const size_t room = layer_.partial_rows() / (block.rows() * model_.attention.num_heads);
    chunk.max_blocks =
        PassGraphs::RoundBlocks(chunk.max_blocks, std::min(room, layer_.table_stride()));
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
                                         logits_ + row * logits_stride_, size * sizeof(float)));
  }
  return stream_->Wait();
}

DeviceLogits CudaBackend::device_logits() const {
  return {logits_, logits_stride_, plan_->num_logits()};
}

LogitsView CudaBackend::host_logits() const {
  return {host_logits_.data(), model_.vocabulary_size, plan_->num_logits()};
}

absl::Status CudaBackend::Embed() {
  layer_.Begin(shape_.rows);
  return tandem::Embed({.table = weights_.embedding.weight,
                        .dtype = weights_.embedding.dtype,
                        .size = model_.hidden_size,
                        .ids = shape_.token_ids,
                        .rows = layer_.rows(),
                        .out = layer_.hidden(),
                        .out_stride = model_.hidden_size},
                       stream_->get());
}

absl::Status CudaBackend::Qkv(size_t layer) {
  const CudaLayerWeights& weights = weights_.layers[layer];
  TANDEM_RETURN_IF_ERROR(layer_.Norm(weights.attention_norm, weights.qkv));
  return layer_.Qkv(weights, layer_.normed(), kv_->Layer(layer), numbers_);
}

absl::Status CudaBackend::Attend(size_t layer) {
  return layer_.Attend(weights_.layers[layer], kv_->Layer(layer), numbers_, shape_);
}

absl::Status CudaBackend::StoreFeatures(size_t layer) {
  const size_t size = model_.hidden_size;
  const size_t stride = kv_->feature_stride();
  for (size_t part = 0; part < row_features_.parts.size(); ++part) {
    if (row_features_.parts[part].layer != layer) continue;
    float* const to = kv_->features() + part * size;
    const int32_t* const to_rows = numbers_.pool_rows();
    if (row_features_.parts[part].is_normed) {
      TANDEM_RETURN_IF_ERROR(WriteNorm(layer_.rows(), to, stride, to_rows));
    } else {
      TANDEM_RETURN_IF_ERROR(tandem::Embed({.table = layer_.hidden(),
                                            .dtype = DType::kF32,
                                            .size = size,
                                            .rows = layer_.rows(),
                                            .out = to,
                                            .out_stride = stride,
                                            .out_rows = to_rows},
                                           stream_->get()));
    }
  }
  return absl::OkStatus();
}

absl::Status CudaBackend::WriteNorm(size_t rows, float* to, size_t to_stride,
                                    const int32_t* to_rows) {
  return RmsNorm({.x = layer_.hidden(),
                  .x_stride = model_.hidden_size,
                  .rows = rows,
                  .size = model_.hidden_size,
                  .weight = weights_.final_norm,
                  .eps = static_cast<float>(model_.norm_eps),
                  .out = to,
                  .out_stride = to_stride,
                  .out_rows = to_rows},
                 stream_->get());
}

absl::Status CudaBackend::KeepRows() {
  return layer_.KeepRows(shape_.wants_logits, weights_.layers.back());
}

absl::Status CudaBackend::Output(size_t layer) { return layer_.Output(weights_.layers[layer]); }

absl::Status CudaBackend::Mlp(size_t layer) { return layer_.Mlp(weights_.layers[layer]); }

absl::Status CudaBackend::Logits() {
  TANDEM_RETURN_IF_ERROR(layer_.Norm(weights_.final_norm, weights_.output));
  if (keeps_features_) TANDEM_RETURN_IF_ERROR(EnqueueFeatures());
  return layer_.Product(
      weights_.output, layer_.normed(),
      {.data = logits_ + shape_.logits_row * logits_stride_, .stride = logits_stride_});
}

absl::Status CudaBackend::EnqueueFeatures() {
  // A graph serves passes of one block, whose rows of logits begin at 0.
  const size_t begin = std::min(block_.logits_row, kMaxLogitsRows);
  return WriteNorm(std::min(layer_.rows(), kMaxLogitsRows - begin),
                   features_ + begin * model_.hidden_size, model_.hidden_size, nullptr);
}

}  // namespace tandem
