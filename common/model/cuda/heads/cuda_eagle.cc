#include "common/model/cuda/heads/cuda_eagle.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "common/model/cuda/weight_uploader.h"
#include "common/model/heads/eagle.h"
#include "common/status.h"
#include "kernels/embedding.h"

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
  TANDEM_RETURN_IF_ERROR(CheckForGpu(folder, opened.description, {&opened.weights.layer, 1}));
  const double step_cost = opened.weights.StepCost(target_weights);
  std::unique_ptr<CudaEagle> device(
      new CudaEagle(std::move(opened), target_weights, backend, options, target.num_layers));
  CudaDrafter* const part = device.get();
  return LoadedDrafter{std::make_unique<Eagle>(std::move(device), target.hidden_size, step_cost),
                       part};
}

CudaEagle::CudaEagle(OpenedEagle opened, const ModelWeights& target, const CudaBackend* backend,
                     const Options& options, size_t layer_index)
    : opened_(std::move(opened)),
      backend_(*backend),
      options_(options),
      layer_index_(layer_index),
      has_own_embedding_(opened_.weights.embedding.weight != target.embedding.weight),
      has_own_output_(opened_.weights.output.weight != target.output.weight),
      layer_(&opened_.description, {.max_rows = kMaxRows,
                                    .max_context = options.max_context,
                                    .exact_activations = options.exact_activations,
                                    .partial_bytes = kEaglePartialBytes}),
      numbers_(layer_.number_sizes()) {
  const EagleWeights& weights = opened_.weights;
  weight_bytes_ = WeightUploader::Bytes(weights.fuse) + CudaLayerWeights::Bytes(weights.layer);
  if (has_own_embedding_) weight_bytes_ += WeightUploader::Bytes(weights.embedding);
  if (has_own_output_) weight_bytes_ += WeightUploader::Bytes(weights.output);
}

absl::Status CudaEagle::LayOut(const MemoryTaker& take) {
  const size_t hidden = opened_.description.hidden_size;
  const int num_parts = NumBf16Parts(options_.exact_activations);
  TANDEM_RETURN_IF_ERROR(numbers_.LayOut(take));
  TANDEM_RETURN_IF_ERROR(layer_.LayOut(take));
  TANDEM_RETURN_IF_ERROR(
      LayOutRows(&input_, kMaxRows, 2 * hidden, num_parts, "rows of EAGLE", take));
  TANDEM_RETURN_IF_ERROR(take(&guesses_, kMaxGuesses * hidden, "guesses of EAGLE"));
  TANDEM_RETURN_IF_ERROR(take(&all_rows_, kMaxRows, "rows of EAGLE"));
  TANDEM_RETURN_IF_ERROR(take(&looks_, kMaxLooks, "guesses of EAGLE"));
  return likeliest_.LayOut(take);
}

absl::Status CudaEagle::Start(const DeviceStream* stream) {
  stream_ = stream;
  TANDEM_RETURN_IF_ERROR(numbers_.Start(stream));
  TANDEM_RETURN_IF_ERROR(layer_.Start(stream));
  TANDEM_ASSIGN_OR_RETURN(sent_looks_, PinnedMemory::Create(kMaxLooks * sizeof(int32_t)));
  TANDEM_RETURN_IF_ERROR(likeliest_.Start(stream));
  std::vector<int32_t> rows(kMaxRows);
  std::iota(rows.begin(), rows.end(), 0);
  const absl::Status copied =
      stream_->Copy(all_rows_, rows.data(), rows.size() * sizeof(rows.front()));
  absl::Status done = stream_->Wait();  // the copy needs `rows`, also after an error
  TANDEM_RETURN_IF_ERROR(copied);
  return done;
}

absl::Status CudaEagle::Upload(const CudaWeights& target, DeviceArena& arena,
                               const std::function<void(uint64_t)>& on_progress) {
  TANDEM_ASSIGN_OR_RETURN(WeightUploader uploader,
                          WeightUploader::Create(arena, *stream_, on_progress));
  const EagleWeights& from = opened_.weights;
  TANDEM_ASSIGN_OR_RETURN(fuse_, uploader.Copy(from.fuse, "fc of EAGLE"));
  TANDEM_ASSIGN_OR_RETURN(weights_, CudaLayerWeights::Upload(from.layer, uploader));
  embedding_ = target.embedding;
  if (has_own_embedding_) {
    TANDEM_ASSIGN_OR_RETURN(embedding_, uploader.Copy(from.embedding, "the embedding of EAGLE"));
  }
  output_ = target.output;
  if (has_own_output_) {
    TANDEM_ASSIGN_OR_RETURN(output_, uploader.Copy(from.output, "lm_head of EAGLE"));
  }
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
  const float* const features = reads_guesses ? guesses_ : pages_->features();
  TANDEM_RETURN_IF_ERROR(Fuse(features, rows));
  TANDEM_RETURN_IF_ERROR(Gather(layer_.hidden(), all_rows_, rows, layer_.normed()));
  TANDEM_RETURN_IF_ERROR(layer_.Qkv(weights_));
  TANDEM_RETURN_IF_ERROR(layer_.Attend(weights_, pages_->Layer(layer_index_), numbers_,
                                       shape_.chunks, /*hidden_rows=*/1));
  TANDEM_RETURN_IF_ERROR(layer_.Output(weights_));
  TANDEM_RETURN_IF_ERROR(layer_.Mlp(weights_));
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

absl::Status CudaEagle::Fuse(const float* features, size_t rows) {
  const size_t hidden = opened_.description.hidden_size;
  TANDEM_RETURN_IF_ERROR(Embed({.table = embedding_.weight,
                                .dtype = embedding_.dtype,
                                .size = hidden,
                                .ids = numbers_.token_ids(),
                                .rows = rows,
                                .out = input_.floats,
                                .out_stride = input_.floats_stride,
                                .out_bf16 = input_.bf16},
                               stream_->get()));
  Bf16Rows second_half = input_.bf16;
  second_half.parts += hidden;
  TANDEM_RETURN_IF_ERROR(Gather(features, numbers_.sources(), rows,
                                {input_.floats + hidden, input_.floats_stride, second_half}));
  return layer_.Product(fuse_, input_, {.data = layer_.hidden(), .stride = hidden});
}

absl::Status CudaEagle::Gather(const float* table, const int32_t* ids, size_t rows,
                               const ProductRows& to) {
  return Embed({.table = table,
                .dtype = DType::kF32,
                .size = opened_.description.hidden_size,
                .ids = ids,
                .rows = rows,
                .out = to.floats,
                .out_stride = to.floats_stride,
                .out_bf16 = to.bf16},
               stream_->get());
}

absl::Status CudaEagle::KeepGuesses(const EaglePass& pass) {
  const size_t hidden = opened_.description.hidden_size;
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
  TANDEM_RETURN_IF_ERROR(Gather(guesses_, looks_, rows, input_));
  TANDEM_RETURN_IF_ERROR(MultiplyRows(
      output_, input_, rows, {.data = backend_.logits_memory(), .stride = backend_.logits_stride()},
      stream_->get()));
  return likeliest_.Enqueue(backend_, rows, output_.out_features);
}

}  // namespace tandem
