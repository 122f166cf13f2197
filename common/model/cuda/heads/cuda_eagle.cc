#include "common/model/cuda/heads/cuda_eagle.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/model/cuda/weight_uploader.h"
#include "common/model/heads/eagle.h"
#include "common/status.h"
#include "kernels/embedding.h"
#include "kernels/rms_norm.h"

namespace tandem {
namespace {

// Bytes of attention's partial softmaxes. A pass that needs more attends in several calls.
constexpr size_t kEaglePartialBytes = size_t{32} << 20;

}  // namespace

absl::StatusOr<LoadedDrafter> CudaEagle::Load(const std::filesystem::path& folder,
                                              const ModelDescription& target,
                                              const ModelWeights& target_weights,
                                              const CudaBackend* backend, const Options& options) {
  TANDEM_ASSIGN_OR_RETURN(OpenedEagle opened, OpenedEagle::Open(folder, target, target_weights));
  TANDEM_RETURN_IF_ERROR(CheckForGpu(folder, opened.description.layer, {&opened.weights.layer, 1}));
  EagleTraits traits = opened.Traits(target_weights);
  std::unique_ptr<CudaEagle> device(
      new CudaEagle(std::move(opened), backend, options, target.num_layers));
  CudaDrafter* const part = device.get();
  return LoadedDrafter{std::make_unique<Eagle>(std::move(device), std::move(traits)), part};
}

CudaEagle::CudaEagle(OpenedEagle opened, const CudaBackend* backend, const Options& options,
                     size_t layer_index)
    : opened_(std::move(opened)),
      backend_(*backend),
      options_(options),
      layer_index_(layer_index),
      weight_bytes_(CudaEagleWeights::Bytes(opened_.weights)),
      layer_(&opened_.description.layer, {.max_rows = kMaxRows,
                                          .max_context = options.max_context,
                                          .exact_activations = options.exact_activations,
                                          .partial_bytes = kEaglePartialBytes}),
      numbers_(layer_.number_sizes()) {}

absl::Status CudaEagle::LayOut(const MemoryTaker& take) {
  const char* const what = "rows of EAGLE";
  const size_t hidden = opened_.description.layer.hidden_size;
  const int num_parts = NumBf16Parts(options_.exact_activations);
  TANDEM_RETURN_IF_ERROR(numbers_.LayOut(take));
  TANDEM_RETURN_IF_ERROR(layer_.LayOut(take));
  TANDEM_RETURN_IF_ERROR(
      LayOutRows(&fused_, kMaxRows, opened_.weights.fuse.in_features, num_parts, what, take));
  if (opened_.description.is_third) {
    TANDEM_RETURN_IF_ERROR(LayOutRows(&joined_, kMaxRows, 2 * hidden, num_parts, what, take));
    TANDEM_RETURN_IF_ERROR(take(&floats_, kMaxRows * hidden, what));
  }
  TANDEM_RETURN_IF_ERROR(take(&guesses_, kMaxGuesses * hidden, "guesses of EAGLE"));
  TANDEM_RETURN_IF_ERROR(take(&looks_, kMaxLooks, "guesses of EAGLE"));
  return likeliest_.LayOut(take);
}

absl::Status CudaEagle::Start(const DeviceStream* stream) {
  stream_ = stream;
  TANDEM_RETURN_IF_ERROR(numbers_.Start(stream));
  TANDEM_RETURN_IF_ERROR(layer_.Start(stream));
  TANDEM_ASSIGN_OR_RETURN(sent_looks_, PinnedMemory::Create(kMaxLooks * sizeof(int32_t)));
  return likeliest_.Start(stream);
}

absl::Status CudaEagle::Upload(const CudaWeights& target, DeviceArena& arena,
                               const std::function<void(uint64_t)>& on_progress) {
  TANDEM_ASSIGN_OR_RETURN(WeightUploader uploader,
                          WeightUploader::Create(arena, *stream_, on_progress));
  TANDEM_ASSIGN_OR_RETURN(weights_, CudaEagleWeights::Upload(opened_.weights, target, uploader));
  TANDEM_RETURN_IF_ERROR(stream_->Wait());
  TANDEM_RETURN_IF_ERROR(opened_.checkpoint->CheckWhole());
  opened_.weights = {};
  opened_.checkpoint.reset();
  return absl::OkStatus();
}

// ---------------------------------------------------------------- rows

absl::Status CudaEagle::ClearRowZero(KvCache& cache) {
  return pages_->ClearRow(layer_index_, cache.PageIndex(0), 0);
}

absl::Status CudaEagle::Run(const EaglePass& pass) {
  const size_t rows = pass.rows.size();
  TANDEM_RETURN_IF_ERROR(SendNumbers(pass));
  layer_.Begin(rows);
  const bool reads_guesses = pass.rows.front().guess >= 0;
  const float* const states = reads_guesses ? guesses_ : pages_->features();
  const bool is_third = opened_.description.is_third;
  TANDEM_RETURN_IF_ERROR(is_third ? BeginWithStates(states, reads_guesses, rows)
                                  : Fuse(states, rows));
  TANDEM_RETURN_IF_ERROR(layer_.Qkv(weights_.layer, is_third ? joined_ : layer_.normed()));
  TANDEM_RETURN_IF_ERROR(layer_.Attend(weights_.layer, pages_->Layer(layer_index_), numbers_,
                                       shape_.chunks, /*hidden_rows=*/1));
  TANDEM_RETURN_IF_ERROR(layer_.Output(weights_.layer));
  TANDEM_RETURN_IF_ERROR(layer_.Mlp(weights_.layer));
  return KeepGuesses(pass);
}

absl::Status CudaEagle::SendNumbers(const EaglePass& pass) {
  token_ids_.clear();
  positions_.clear();
  sources_.clear();
  sequences_.clear();
  size_t row = 0;
  for (const EaglePass::Sequence& sequence : pass.sequences) {
    for (size_t i = 0; i < sequence.rows; ++i) {
      const EaglePass::Row& from = pass.rows[row++];
      token_ids_.push_back(from.token_id);
      positions_.push_back(static_cast<int32_t>(from.position));
      sources_.push_back(from.guess >= 0 ? from.guess
                                         : RowNumbers::PoolRow(*sequence.cache, from.position - 1));
    }
    RowNumbers::Sequence& to = sequences_.emplace_back();
    to.cache = sequence.cache;
    to.length = sequence.length;
    to.first_row = sequence.first_row;
    to.rows = sequence.rows;
    if (sequence.parents.empty()) continue;
    to.tree_begin = 0;
    to.parents = sequence.parents;
  }
  return numbers_.Send({.token_ids = token_ids_,
                        .positions = positions_,
                        .sequences = sequences_,
                        .sources = sources_},
                       &shape_);
}

absl::Status CudaEagle::Fuse(const float* states, size_t rows) {
  const size_t hidden = opened_.description.layer.hidden_size;
  TANDEM_RETURN_IF_ERROR(EmbedTokens(rows, fused_));
  TANDEM_RETURN_IF_ERROR(
      Gather(states, hidden, numbers_.sources(), rows, fused_.FromColumn(hidden)));
  TANDEM_RETURN_IF_ERROR(
      layer_.Product(weights_.fuse, fused_, {.data = layer_.hidden(), .stride = hidden}));
  return Gather(layer_.hidden(), hidden, nullptr, rows, layer_.normed());
}

absl::Status CudaEagle::BeginWithStates(const float* states, bool are_guesses, size_t rows) {
  const size_t hidden = opened_.description.layer.hidden_size;
  const CudaLinear& qkv = weights_.layer.qkv;
  if (are_guesses) {
    TANDEM_RETURN_IF_ERROR(
        Gather(states, hidden, numbers_.sources(), rows, {layer_.hidden(), hidden, Bf16Rows()}));
  } else {
    TANDEM_RETURN_IF_ERROR(
        Gather(states, weights_.fuse.in_features, numbers_.sources(), rows, fused_));
    TANDEM_RETURN_IF_ERROR(
        layer_.Product(weights_.fuse, fused_, {.data = layer_.hidden(), .stride = hidden}));
  }
  TANDEM_RETURN_IF_ERROR(EmbedTokens(rows, {floats_, hidden, Bf16Rows()}));
  TANDEM_RETURN_IF_ERROR(Norm(weights_.layer.attention_norm, floats_, rows, qkv, joined_));
  return Norm(weights_.state_norm, layer_.hidden(), rows, qkv, joined_.FromColumn(hidden));
}

absl::Status CudaEagle::Gather(const float* table, size_t size, const int32_t* ids, size_t rows,
                               const ProductRows& to) {
  return Embed({.table = table,
                .dtype = DType::kF32,
                .size = size,
                .ids = ids,
                .rows = rows,
                .out = to.floats,
                .out_stride = to.floats_stride,
                .out_bf16 = to.bf16},
               stream_->get());
}

absl::Status CudaEagle::EmbedTokens(size_t rows, const ProductRows& to) {
  return Embed({.table = weights_.embedding.weight,
                .dtype = weights_.embedding.dtype,
                .size = opened_.description.layer.hidden_size,
                .ids = numbers_.token_ids(),
                .rows = rows,
                .out = to.floats,
                .out_stride = to.floats_stride,
                .out_bf16 = to.bf16},
               stream_->get());
}

absl::Status CudaEagle::Norm(const float* weight, const float* x, size_t rows,
                             const CudaLinear& linear, const ProductRows& to) {
  const size_t hidden = opened_.description.layer.hidden_size;
  return RmsNorm({.x = x,
                  .x_stride = hidden,
                  .rows = rows,
                  .size = hidden,
                  .weight = weight,
                  .eps = static_cast<float>(opened_.description.layer.norm_eps),
                  .out = to.floats,
                  .out_stride = to.floats_stride,
                  .out_bf16 = to.For(linear.dtype)},
                 stream_->get());
}

absl::Status CudaEagle::KeepGuesses(const EaglePass& pass) {
  const size_t hidden = opened_.description.layer.hidden_size;
  for (size_t row = 0; row < pass.rows.size();) {
    const int32_t first = pass.rows[row].kept_as;
    size_t run = 1;  // rows that are kept side by side
    while (row + run < pass.rows.size() && first >= 0 &&
           pass.rows[row + run].kept_as == first + static_cast<int32_t>(run)) {
      ++run;
    }
    if (first >= 0) {
      TANDEM_RETURN_IF_ERROR(stream_->Copy(guesses_ + static_cast<size_t>(first) * hidden,
                                           layer_.hidden() + row * hidden,
                                           run * hidden * sizeof(float)));
    }
    row += run;
  }
  return absl::OkStatus();
}

// ---------------------------------------------------------------- tokens

absl::StatusOr<std::vector<std::vector<Guess>>> CudaEagle::LookAhead(
    std::span<const int32_t> guesses) {
  std::vector<std::vector<Guess>> found(guesses.size());
  for (size_t begin = 0; begin < guesses.size(); begin += kMaxLooks) {
    const size_t count = std::min(guesses.size() - begin, kMaxLooks);
    TANDEM_RETURN_IF_ERROR(
        LookAhead(guesses.subspan(begin, count), std::span(found).subspan(begin, count)));
  }
  return found;
}

absl::Status CudaEagle::LookAhead(std::span<const int32_t> guesses,
                                  std::span<std::vector<Guess>> found) {
  const absl::Status enqueued = EnqueueLooks(guesses);
  // After a failure too, no copy from or to the pinned memory may still be pending.
  absl::Status done = stream_->Wait();
  TANDEM_RETURN_IF_ERROR(enqueued);
  TANDEM_RETURN_IF_ERROR(done);
  for (size_t i = 0; i < guesses.size(); ++i) {
    for (const TopLogProb& top : likeliest_.Of(i)) found[i].push_back(GuessOf(top));
  }
  return absl::OkStatus();
}

absl::Status CudaEagle::EnqueueLooks(std::span<const int32_t> guesses) {
  const size_t rows = guesses.size();
  std::copy(guesses.begin(), guesses.end(), static_cast<int32_t*>(sent_looks_.data()));
  TANDEM_RETURN_IF_ERROR(stream_->Copy(looks_, sent_looks_.data(), rows * sizeof(int32_t)));
  const size_t hidden = opened_.description.layer.hidden_size;
  const CudaLinear& output = weights_.output;
  if (opened_.description.is_third) {
    TANDEM_RETURN_IF_ERROR(Gather(guesses_, hidden, looks_, rows, {floats_, hidden, Bf16Rows()}));
    TANDEM_RETURN_IF_ERROR(Norm(weights_.output_norm, floats_, rows, output, fused_));
  } else {
    TANDEM_RETURN_IF_ERROR(Gather(guesses_, hidden, looks_, rows, fused_));
  }
  TANDEM_RETURN_IF_ERROR(MultiplyRows(
      output, fused_, rows, {.data = backend_.logits_memory(), .stride = backend_.logits_stride()},
      stream_->get()));
  return likeliest_.Enqueue(backend_, rows, output.out_features);
}

}  // namespace tandem
