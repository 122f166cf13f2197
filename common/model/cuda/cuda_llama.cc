#include "common/model/cuda/cuda_llama.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/checkpoint.h"
#include "common/model/llama_weights.h"
#include "common/model/model_fingerprint.h"
#include "common/model/rope_table.h"
#include "common/status.h"
#include "kernels/attention.h"
#include "kernels/embedding.h"
#include "kernels/matmul.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"

namespace tandem {
namespace {

// Rows of one sequence that share what attention reads.
constexpr size_t kTileRows = 16;
// For the partial softmaxes of attention: what some 80 rows of a 3B model take at 8,192 tokens.
constexpr size_t kPartialBytes = size_t{128} << 20;

absl::Status CheckSizes(const std::filesystem::path& folder, const ModelConfig& config) {
  const std::pair<const char*, size_t> sizes[] = {
      {"hidden_size", config.hidden_size},
      {"intermediate_size", config.intermediate_size},
      {"num_attention_heads * head_dim", config.num_heads * config.head_size}};
  for (const auto& [name, size] : sizes) {
    if (size % 8 == 0) continue;
    return InvalidArgument(absl::StrCat((folder / "config.json").string(), ": ", name, " is ", size,
                                        ": on a GPU it must be a multiple of 8"));
  }
  return absl::OkStatus();
}

// What attention takes grows with the size of a head, and devices differ in what they have.
absl::Status CheckHeadSize(const std::filesystem::path& folder, const ModelConfig& config,
                           const DeviceInfo& device) {
  const size_t bytes = AttentionSharedBytes(config.head_size);
  if (bytes <= device.max_shared_bytes) return absl::OkStatus();
  return InvalidArgument(absl::StrCat(
      (folder / "config.json").string(), ": head_dim is ", config.head_size, ": attention takes ",
      bytes, " bytes of shared memory a block, ", device.name, " has ", device.max_shared_bytes));
}

std::string Mebibytes(uint64_t bytes) { return absl::StrCat((bytes + (1 << 19)) >> 20, " MiB"); }

}  // namespace

absl::StatusOr<std::unique_ptr<CudaLlama>> CudaLlama::Load(const std::filesystem::path& folder,
                                                           CudaLlamaOptions options) {
  TANDEM_ASSIGN_OR_RETURN(ModelConfig config, ModelConfig::Load(folder));
  TANDEM_RETURN_IF_ERROR(CheckSizes(folder, config));
  TANDEM_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(folder));
  TANDEM_ASSIGN_OR_RETURN(const LlamaWeights weights, LlamaWeights::Load(*checkpoint, config));
  checkpoint->WillNeed();
  std::unique_ptr<CudaLlama> model(new CudaLlama(std::move(config), std::move(options)));
  TANDEM_ASSIGN_OR_RETURN(model->device_, UseDevice(model->options_.device));
  TANDEM_RETURN_IF_ERROR(CheckHeadSize(folder, model->config_, model->device_));
  TANDEM_ASSIGN_OR_RETURN(model->stream_, DeviceStream::Create());
  TANDEM_ASSIGN_OR_RETURN(model->staged_, DeviceEvent::Create());
  TANDEM_RETURN_IF_ERROR(model->TakeMemory(weights));
  const uint64_t all = model->weight_bytes_;
  TANDEM_ASSIGN_OR_RETURN(
      model->weights_,
      CudaWeights::Upload(weights, model->arena_, model->stream_, [&](uint64_t done) {
        if (model->options_.on_progress) model->options_.on_progress(done, all);
      }));
  model->fingerprint_ = FingerprintModel(weights, model->config_);
  TANDEM_RETURN_IF_ERROR(checkpoint->CheckWhole());
  TANDEM_RETURN_IF_ERROR(model->UploadRopeTable());
  return model;
}

absl::Status CudaLlama::TakeMemory(const LlamaWeights& weights) {
  const size_t limit = config_.max_position_embeddings;
  max_context_ = options_.max_context == 0 ? limit : std::min(options_.max_context, limit);
  table_stride_ = (max_context_ + kPageRows - 1) / kPageRows;
  logits_stride_ = (config_.vocabulary_size + 3) / 4 * 4;
  kv_dtype_ = weights.embedding.dtype;
  // One row at the longest context must have room.
  const size_t floats_per_block = config_.head_size + 2;
  partial_rows_ =
      std::max(config_.num_heads * table_stride_, kPartialBytes / sizeof(float) / floats_per_block);
  partial_rows_ = std::min(partial_rows_, config_.num_heads * table_stride_ * kMaxBlockRows);

  weight_bytes_ = CudaWeights::Bytes(weights);
  sampler_ = DeviceSampler({.vocabulary_size = config_.vocabulary_size,
                            .logits_stride = logits_stride_,
                            .max_contexts = std::min(options_.max_slots, DeviceSampler::kMaxRows),
                            .max_context = max_context_,
                            .judges = options_.judges});
  uint64_t scratch_bytes = 0;
  const auto add = [&](auto** array, size_t count, const char*) {
    scratch_bytes += DeviceArena::Rounded(count * sizeof(**array));
    return absl::OkStatus();
  };
  TANDEM_RETURN_IF_ERROR(LayOutScratch(add));
  TANDEM_RETURN_IF_ERROR(sampler_.LayOut(add));
  const uint64_t fixed_bytes = weight_bytes_ + scratch_bytes;
  const uint64_t page_bytes = CudaKvMemory::PageBytes(config_, kv_dtype_);
  const uint64_t budget =
      options_.memory_bytes != 0 ? options_.memory_bytes : device_.memory_bytes / 5 * 2;
  if (budget < fixed_bytes + page_bytes) {
    return ResourceExhausted(absl::StrCat(
        "GPU memory: ", Mebibytes(budget), " (--gpu-memory-bytes) do not hold weights (",
        Mebibytes(weight_bytes_), "), scratch (", Mebibytes(scratch_bytes),
        ") and one page of the KV cache (", Mebibytes(page_bytes), ")"));
  }
  uint64_t kv_bytes = budget - fixed_bytes;
  if (options_.kv_cache_bytes != 0) {
    if (options_.kv_cache_bytes < page_bytes) {
      return HoldsNoPage(options_.kv_cache_bytes, page_bytes);
    }
    if (options_.kv_cache_bytes > kv_bytes) {
      return ResourceExhausted(absl::StrCat(
          "GPU memory: ", Mebibytes(budget), " (--gpu-memory-bytes) hold weights and scratch (",
          Mebibytes(fixed_bytes), "), but not ", Mebibytes(options_.kv_cache_bytes),
          " of KV cache (--kv-cache-bytes) too"));
    }
    kv_bytes = options_.kv_cache_bytes;
  } else if (options_.memory_bytes == 0) {
    kv_bytes = std::min(kv_bytes, options_.max_slots * table_stride_ * page_bytes);
  }
  num_pages_ = kv_bytes / page_bytes;
  TANDEM_ASSIGN_OR_RETURN(
      arena_, DeviceArena::Create(fixed_bytes + DeviceArena::Rounded(num_pages_ * page_bytes)));
  const auto take = [&](auto** array, size_t count, const char* what) -> absl::Status {
    using Value = std::remove_reference_t<decltype(**array)>;
    TANDEM_ASSIGN_OR_RETURN(*array, arena_.Take<Value>(count, what));
    return absl::OkStatus();
  };
  TANDEM_RETURN_IF_ERROR(LayOutScratch(take));
  TANDEM_RETURN_IF_ERROR(sampler_.LayOut(take));
  TANDEM_ASSIGN_OR_RETURN(kv_data_, arena_.Take<char>(num_pages_ * page_bytes, "the KV cache"));
  TANDEM_ASSIGN_OR_RETURN(staging_, PinnedMemory::Create(numbers_.size * sizeof(int32_t)));
  told_ = static_cast<int32_t*>(staging_.data());
  return sampler_.Start(&stream_);
}

template <typename Take>
absl::Status CudaLlama::LayOutScratch(const Take& take) {
  constexpr size_t kRows = kMaxBlockRows;
  numbers_ = {};
  for (const auto& [offset, count] : {std::pair{&numbers_.token_ids, kRows},
                                      {&numbers_.positions, kRows},
                                      {&numbers_.sequences, kRows},
                                      {&numbers_.cache_rows, kRows},
                                      {&numbers_.cached_lens, kRows},
                                      {&numbers_.path_lens, kRows},
                                      {&numbers_.paths, kRows * kMaxTreeRows},
                                      // A tile a row, and one entry more for each chunk.
                                      {&numbers_.tiles, 2 * kRows},
                                      {&numbers_.page_tables, kRows * table_stride_}}) {
    *offset = numbers_.size;
    numbers_.size += count;
  }
  TANDEM_RETURN_IF_ERROR(take(&scratch_.numbers, numbers_.size, "row numbers"));
  const size_t hidden = kRows * config_.hidden_size;
  const size_t mixed = kRows * head_floats();
  TANDEM_RETURN_IF_ERROR(take(&scratch_.hidden, hidden, "hidden rows"));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.normed, hidden, "normalised rows"));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.qkv, kRows * qkv_floats(), "queries, keys and values"));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.mixed, mixed, "attention's rows"));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.kept_hidden, hidden, "hidden rows"));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.kept_mixed, mixed, "attention's rows"));
  TANDEM_RETURN_IF_ERROR(
      take(&scratch_.gate_up, kRows * 2 * config_.intermediate_size, "gate and up rows"));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.logits, kRows * logits_stride_, "logits"));
  TANDEM_RETURN_IF_ERROR(
      take(&scratch_.partial_values, partial_rows_ * config_.head_size, "partial sums"));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.partial_maxima, partial_rows_, "partial sums"));
  TANDEM_RETURN_IF_ERROR(take(&scratch_.partial_sums, partial_rows_, "partial sums"));
  return take(&scratch_.rope_table, max_context_ * config_.head_size, "angles");
}

absl::Status CudaLlama::UploadRopeTable() {
  RopeTable table(config_);
  table.Reserve(max_context_);
  // Whatever fails, what the stream still copies from must outlive it.
  host_logits_.assign(table.data(), table.data() + max_context_ * config_.head_size);
  TANDEM_RETURN_IF_ERROR(
      stream_.Copy(scratch_.rope_table, host_logits_.data(), host_logits_.size() * sizeof(float)));
  TANDEM_RETURN_IF_ERROR(stream_.Wait());
  std::vector<float>().swap(host_logits_);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<KvPagePool>> CudaLlama::TakePages() {
  if (kv_ != nullptr) return Internal("the model's pages are taken already");
  auto memory = std::make_unique<CudaKvMemory>(config_, kv_dtype_, kv_data_, num_pages_, &stream_,
                                               options_.spoil_freed_rows);
  kv_ = memory.get();
  return std::make_unique<KvPagePool>(config_, std::move(memory));
}

absl::StatusOr<LogitsView> CudaLlama::Forward(std::span<const ForwardItem> items) {
  TANDEM_RETURN_IF_ERROR(MakePlan(items));
  host_logits_.resize(plan_.num_logits() * config_.vocabulary_size);
  size_t logits_row = 0;
  for (size_t b = 0; b + 1 < blocks_.size(); ++b) {
    TANDEM_ASSIGN_OR_RETURN(const size_t rows, RunBlock(blocks_[b], blocks_[b + 1], 0, nullptr));
    for (size_t row = 0; row < rows; ++row) {
      TANDEM_RETURN_IF_ERROR(stream_.Copy(
          host_logits_.data() + (logits_row + row) * config_.vocabulary_size,
          scratch_.logits + row * logits_stride_, config_.vocabulary_size * sizeof(float)));
    }
    TANDEM_RETURN_IF_ERROR(stream_.Wait());
    logits_row += rows;
  }
  for (const ForwardItem& item : items) item.cache->Grow(item.token_ids.size());
  return LogitsView{host_logits_.data(), config_.vocabulary_size, logits_row};
}

absl::StatusOr<DeviceLogits> CudaLlama::ForwardOnDevice(std::span<const ForwardItem> items,
                                                        const int32_t* token_ids) {
  TANDEM_RETURN_IF_ERROR(MakePlan(items));
  if (plan_.num_logits() > kMaxBlockRows) {
    return InvalidArgument(absl::StrCat("forward pass: ", plan_.num_logits(),
                                        " rows of logits, at most ", kMaxBlockRows));
  }
  size_t logits_row = 0;
  for (size_t b = 0; b + 1 < blocks_.size(); ++b) {
    TANDEM_ASSIGN_OR_RETURN(logits_row,
                            RunBlock(blocks_[b], blocks_[b + 1], logits_row,
                                     token_ids == nullptr ? nullptr : token_ids + blocks_[b]));
  }
  for (const ForwardItem& item : items) item.cache->Grow(item.token_ids.size());
  return DeviceLogits{scratch_.logits, logits_stride_, logits_row};
}

absl::Status CudaLlama::MakePlan(std::span<const ForwardItem> items) {
  if (kv_ == nullptr) return Internal("forward pass before TakePages");
  TANDEM_RETURN_IF_ERROR(SelectDevice(device_.index));
  TANDEM_RETURN_IF_ERROR(plan_.Make(items, config_.vocabulary_size));
  for (size_t i = 0; i < items.size(); ++i) {
    const size_t rows = items[i].token_ids.size();
    if (!items[i].parents.empty() && rows > kMaxTreeRows) {
      return InvalidArgument(absl::StrCat("forward pass: item ", i, " is a tree of ", rows,
                                          " rows, at most ", kMaxTreeRows));
    }
    if (items[i].cache->length() + rows > max_context_) {
      return InvalidArgument(absl::StrCat("forward pass: item ", i, " reaches row ",
                                          items[i].cache->length() + rows, " of ", max_context_));
    }
  }
  CutBlocks();
  return absl::OkStatus();
}

void CudaLlama::CutBlocks() {
  blocks_ = {0};
  size_t row = 0;
  bool has_trees = false;
  for (const ForwardItem& item : plan_.items()) {
    const size_t end = row + item.token_ids.size();
    const bool is_tree = !item.parents.empty();
    const bool is_cut = row > blocks_.back() &&
                        (is_tree != has_trees || (is_tree && end - blocks_.back() > kMaxBlockRows));
    if (is_cut) blocks_.push_back(row);
    has_trees = is_tree;
    while (end - blocks_.back() > kMaxBlockRows) blocks_.push_back(blocks_.back() + kMaxBlockRows);
    row = end;
  }
  if (row > blocks_.back()) blocks_.push_back(row);
}

absl::StatusOr<size_t> CudaLlama::RunBlock(size_t begin, size_t end, size_t logits_row,
                                           const int32_t* token_ids) {
  TANDEM_RETURN_IF_ERROR(TellRows(begin, end));
  progress_.fetch_add(1, std::memory_order_relaxed);
  const std::optional<PassShape> shape = ShapeOf(begin, end, token_ids);
  if (!shape.has_value()) return RunLayers(begin, end, logits_row, token_ids);
  TANDEM_RETURN_IF_ERROR(graphs_.Run(
      *shape, stream_, [&] { return RunLayers(begin, end, logits_row, token_ids).status(); }));
  return logits_row + static_cast<size_t>(std::popcount(shape->wants_logits));
}

std::optional<PassShape> CudaLlama::ShapeOf(size_t begin, size_t end, const int32_t* token_ids) {
  const size_t rows = end - begin;
  if (!options_.use_graphs || rows > PassGraphs::kMaxRows || blocks_.size() > 2 ||
      chunks_.size() > 1) {
    return std::nullopt;
  }
  AttentionChunk& chunk = chunks_.front();
  const size_t room = partial_rows_ / (rows * config_.num_heads);
  chunk.max_blocks = PassGraphs::RoundBlocks(chunk.max_blocks, std::min(room, table_stride_));
  PassShape shape = {.rows = rows,
                     .tiles = chunk.num_tiles,
                     .max_blocks = chunk.max_blocks,
                     .has_paths = block_has_paths_,
                     .token_ids = token_ids};
  for (size_t row = 0; row < rows; ++row) {
    shape.wants_logits |= uint64_t{plan_.wants_logits(begin + row)} << row;
  }
  return shape;
}

absl::StatusOr<size_t> CudaLlama::RunLayers(size_t begin, size_t end, size_t logits_row,
                                            const int32_t* token_ids) {
  const size_t rows = end - begin;
  TANDEM_RETURN_IF_ERROR(
      Embed({.table = weights_.embedding.weight,
             .dtype = weights_.embedding.dtype,
             .size = config_.hidden_size,
             .ids = token_ids != nullptr ? token_ids : scratch_.numbers + numbers_.token_ids,
             .rows = rows,
             .out = scratch_.hidden,
             .out_stride = config_.hidden_size},
            stream_.get()));
  float* hidden = scratch_.hidden;
  const float* mixed = scratch_.mixed;
  size_t live_rows = rows;
  for (size_t l = 0; l < config_.num_layers; ++l) {
    const CudaLayerWeights& layer = weights_.layers[l];
    TANDEM_RETURN_IF_ERROR(Norm(layer.attention_norm, hidden, rows));
    float* out = scratch_.qkv;
    for (const CudaLinear* linear : {&layer.query, &layer.key, &layer.value}) {
      TANDEM_RETURN_IF_ERROR(
          Product(*linear, scratch_.normed, config_.hidden_size, rows, out, qkv_floats()));
      out += linear->out_features;
    }
    TANDEM_RETURN_IF_ERROR(Rope({.x = scratch_.qkv,
                                 .x_stride = qkv_floats(),
                                 .rows = rows,
                                 // Queries and keys lie side by side: one call turns both.
                                 .num_heads = config_.num_heads + config_.num_kv_heads,
                                 .head_size = config_.head_size,
                                 .positions = scratch_.numbers + numbers_.positions,
                                 .table = scratch_.rope_table},
                                stream_.get()));
    TANDEM_RETURN_IF_ERROR(Attend(l));
    if (l + 1 == config_.num_layers) {
      TANDEM_ASSIGN_OR_RETURN(live_rows, KeepLogitsRows(begin, end));
      if (live_rows == 0) return logits_row;
      if (live_rows < rows) {
        hidden = scratch_.kept_hidden;
        mixed = scratch_.kept_mixed;
      }
    }
    TANDEM_RETURN_IF_ERROR(Product(layer.attention_output, mixed, head_floats(), live_rows, hidden,
                                   config_.hidden_size, /*add_to_out=*/true));
    TANDEM_RETURN_IF_ERROR(Mlp(layer, hidden, live_rows));
  }
  TANDEM_RETURN_IF_ERROR(Norm(weights_.final_norm, hidden, live_rows));
  TANDEM_RETURN_IF_ERROR(Product(weights_.output, scratch_.normed, config_.hidden_size, live_rows,
                                 scratch_.logits + logits_row * logits_stride_, logits_stride_));
  return logits_row + live_rows;
}

// Fills the pinned arrays of a block and sends them.
absl::Status CudaLlama::TellRows(size_t begin, size_t end) {
  TANDEM_RETURN_IF_ERROR(staged_.Wait());  // the last block's have been fetched
  plan_.FindSegments(begin, end, &segments_);
  block_has_paths_ = !plan_.items()[segments_.front().item].parents.empty();
  std::copy_n(plan_.token_ids().begin() + static_cast<ptrdiff_t>(begin), end - begin,
              told_ + numbers_.token_ids);
  std::copy_n(plan_.positions().begin() + static_cast<ptrdiff_t>(begin), end - begin,
              told_ + numbers_.positions);
  for (size_t s = 0; s < segments_.size(); ++s) {
    TellSegment(s, segments_[s], block_has_paths_, begin);
  }
  CutAttention(end - begin, block_has_paths_);
  const size_t told = numbers_.page_tables + segments_.size() * table_stride_;
  TANDEM_RETURN_IF_ERROR(stream_.Copy(scratch_.numbers, told_, told * sizeof(int32_t)));
  return staged_.Record(stream_);
}

void CudaLlama::TellSegment(size_t sequence, const PlanSegment& segment, bool is_tree,
                            size_t begin) {
  const ForwardItem& item = plan_.items()[segment.item];
  const auto length = static_cast<int32_t>(item.cache->length());
  int32_t* const table = told_ + numbers_.page_tables + sequence * table_stride_;
  for (size_t page = 0; page < item.cache->num_pages() && page < table_stride_; ++page) {
    table[page] = static_cast<int32_t>(item.cache->PageIndex(page));
  }
  for (size_t i = 0; i < segment.rows; ++i) {
    const size_t row = segment.block_row + i;
    const auto row_of_item = static_cast<int32_t>(segment.first_row + i);
    told_[numbers_.sequences + row] = static_cast<int32_t>(sequence);
    told_[numbers_.cache_rows + row] = length + row_of_item;
    if (!is_tree) {
      // The item's rows of earlier blocks are in the cache by now.
      told_[numbers_.cached_lens + row] = length + static_cast<int32_t>(segment.first_row);
      told_[numbers_.path_lens + row] = static_cast<int32_t>(i) + 1;
      continue;
    }
    // A tree is whole: rows of the item are rows of the segment.
    const int32_t path_len = plan_.positions()[begin + row] - length + 1;
    told_[numbers_.cached_lens + row] = length;
    told_[numbers_.path_lens + row] = path_len;
    int32_t* const path = told_ + numbers_.paths + row * kMaxTreeRows;
    int32_t ancestor = row_of_item;
    for (int32_t depth = path_len; depth-- > 0;) {
      path[depth] = ancestor;
      ancestor = item.parents[static_cast<size_t>(ancestor)];
    }
  }
}

void CudaLlama::CutAttention(size_t rows, bool is_tree) {
  chunks_.clear();
  int32_t* const tiles = told_ + numbers_.tiles;
  size_t num_entries = 0;
  const size_t most_rows_of_tile = is_tree ? 1 : kTileRows;
  for (size_t row = 0; row < rows;) {
    AttentionChunk chunk = {.first_row = row, .first_tile = num_entries};
    // Tiles, as long as the partial softmaxes of all rows have room.
    while (row < rows) {
      size_t tile = 0;
      size_t max_blocks = chunk.max_blocks;
      while (row + tile < rows && tile < most_rows_of_tile &&
             told_[numbers_.sequences + row + tile] == told_[numbers_.sequences + row]) {
        const int32_t visible =
            told_[numbers_.cached_lens + row + tile] + told_[numbers_.path_lens + row + tile];
        const size_t blocks =
            std::max(max_blocks, (static_cast<size_t>(visible) + kKeyBlock - 1) / kKeyBlock);
        if ((chunk.rows + tile + 1) * config_.num_heads * blocks > partial_rows_) break;
        max_blocks = blocks;
        ++tile;
      }
      if (tile == 0) break;
      tiles[num_entries++] = static_cast<int32_t>(row - chunk.first_row);
      chunk.max_blocks = max_blocks;
      chunk.rows += tile;
      ++chunk.num_tiles;
      row += tile;
    }
    tiles[num_entries++] = static_cast<int32_t>(row - chunk.first_row);
    chunks_.push_back(chunk);
  }
}

absl::Status CudaLlama::Attend(size_t layer) {
  const DeviceKv kv = kv_->Layer(layer);
  const int32_t* const numbers = scratch_.numbers;
  const auto rows_of = [&](const AttentionChunk& chunk) {
    return DeviceRows{.rows = chunk.rows,
                      .page_tables = numbers + numbers_.page_tables,
                      .table_stride = table_stride_,
                      .sequences = numbers + numbers_.sequences + chunk.first_row,
                      .cache_rows = numbers + numbers_.cache_rows + chunk.first_row,
                      .cached_lens = numbers + numbers_.cached_lens + chunk.first_row,
                      .path_lens = numbers + numbers_.path_lens + chunk.first_row,
                      .paths = block_has_paths_
                                   ? numbers + numbers_.paths + chunk.first_row * kMaxTreeRows
                                   : nullptr,
                      .tiles = numbers + numbers_.tiles + chunk.first_tile,
                      .num_tiles = chunk.num_tiles};
  };
  // All rows are stored before any attends: a chunk sees rows of the chunks before it.
  for (const AttentionChunk& chunk : chunks_) {
    const float* const keys = scratch_.qkv + chunk.first_row * qkv_floats() + head_floats();
    TANDEM_RETURN_IF_ERROR(StoreKv({.kv = kv,
                                    .rows = rows_of(chunk),
                                    .keys = keys,
                                    .keys_stride = qkv_floats(),
                                    .values = keys + kv_floats(),
                                    .values_stride = qkv_floats()},
                                   stream_.get()));
  }
  for (const AttentionChunk& chunk : chunks_) {
    TANDEM_RETURN_IF_ERROR(
        Attention({.kv = kv,
                   .rows = rows_of(chunk),
                   .num_heads = config_.num_heads,
                   .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_size)),
                   .queries = scratch_.qkv + chunk.first_row * qkv_floats(),
                   .queries_stride = qkv_floats(),
                   .max_blocks = chunk.max_blocks,
                   .partial_values = scratch_.partial_values,
                   .partial_maxima = scratch_.partial_maxima,
                   .partial_sums = scratch_.partial_sums,
                   .out = scratch_.mixed + chunk.first_row * head_floats(),
                   .out_stride = head_floats()},
                  stream_.get()));
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> CudaLlama::KeepLogitsRows(size_t begin, size_t end) {
  size_t kept = 0;
  for (size_t row = begin; row < end; ++row) kept += plan_.wants_logits(row) ? 1 : 0;
  if (kept == 0 || kept == end - begin) return kept;
  size_t to = 0;
  for (size_t row = begin; row < end;) {
    size_t run = 0;
    while (row + run < end && plan_.wants_logits(row + run)) ++run;
    if (run > 0) {
      const auto gather = [&](float* kept_rows, const float* rows, size_t size) {
        return stream_.Copy(kept_rows + to * size, rows + (row - begin) * size,
                            run * size * sizeof(float));
      };
      TANDEM_RETURN_IF_ERROR(gather(scratch_.kept_hidden, scratch_.hidden, config_.hidden_size));
      TANDEM_RETURN_IF_ERROR(gather(scratch_.kept_mixed, scratch_.mixed, head_floats()));
    }
    to += run;
    row += std::max<size_t>(run, 1);
  }
  return kept;
}

absl::Status CudaLlama::Mlp(const CudaLayerWeights& layer, float* hidden, size_t rows) {
  const size_t inner = config_.intermediate_size;
  TANDEM_RETURN_IF_ERROR(Norm(layer.mlp_norm, hidden, rows));
  TANDEM_RETURN_IF_ERROR(
      Product(layer.gate, scratch_.normed, config_.hidden_size, rows, scratch_.gate_up, 2 * inner));
  TANDEM_RETURN_IF_ERROR(Product(layer.up, scratch_.normed, config_.hidden_size, rows,
                                 scratch_.gate_up + inner, 2 * inner));
  TANDEM_RETURN_IF_ERROR(SwiGlu({.gate = scratch_.gate_up,
                                 .gate_stride = 2 * inner,
                                 .up = scratch_.gate_up + inner,
                                 .up_stride = 2 * inner,
                                 .rows = rows,
                                 .size = inner},
                                stream_.get()));
  return Product(layer.down, scratch_.gate_up, 2 * inner, rows, hidden, config_.hidden_size,
                 /*add_to_out=*/true);
}

absl::Status CudaLlama::Norm(const float* weight, const float* hidden, size_t rows) {
  return RmsNorm({.x = hidden,
                  .x_stride = config_.hidden_size,
                  .rows = rows,
                  .size = config_.hidden_size,
                  .weight = weight,
                  .eps = static_cast<float>(config_.rms_norm_eps),
                  .out = scratch_.normed,
                  .out_stride = config_.hidden_size},
                 stream_.get());
}

absl::Status CudaLlama::Product(const CudaLinear& linear, const float* x, size_t x_stride,
                                size_t rows, float* out, size_t out_stride, bool add_to_out) {
  return MatMul({.x = x,
                 .x_stride = x_stride,
                 .rows = rows,
                 .w = linear.weight,
                 .dtype = linear.dtype,
                 .out_features = linear.out_features,
                 .in_features = linear.in_features,
                 .bias = linear.bias,
                 .out = out,
                 .out_stride = out_stride,
                 .add_to_out = add_to_out},
                stream_.get());
}

}  // namespace tandem
