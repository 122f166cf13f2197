#include "common/model/cuda/heads/cuda_steps.h"

#include <algorithm>

#include "common/status.h"
#include "kernels/embedding.h"

namespace tandem {
namespace {

// Bytes of attention's partial softmaxes. A pass that needs more attends in several calls.
constexpr size_t kStepPartialBytes = size_t{32} << 20;

}  // namespace

CudaSteps::CudaSteps(const ModelDescription* model, const CudaBackend* backend,
                     const Options& options)
    : model_(*model),
      backend_(*backend),
      options_(options),
      layer_(model, {.max_rows = kMaxRows,
                     .max_context = options.max_context,
                     .exact_activations = options.exact_activations,
                     .partial_bytes = kStepPartialBytes}),
      numbers_(layer_.number_sizes()) {}

absl::Status CudaSteps::LayOut(const MemoryTaker& take) {
  TANDEM_RETURN_IF_ERROR(numbers_.LayOut(take));
  TANDEM_RETURN_IF_ERROR(layer_.LayOut(take));
  TANDEM_RETURN_IF_ERROR(take(&guesses_, kMaxGuesses * model_.hidden_size, "guesses of steps"));
  TANDEM_RETURN_IF_ERROR(take(&looks_, kMaxLooks, "guesses of steps"));
  return likeliest_.LayOut(take);
}

absl::Status CudaSteps::Start(const DeviceStream* stream) {
  stream_ = stream;
  TANDEM_RETURN_IF_ERROR(numbers_.Start(stream));
  TANDEM_RETURN_IF_ERROR(layer_.Start(stream));
  TANDEM_ASSIGN_OR_RETURN(sent_looks_, PinnedMemory::Create(kMaxLooks * sizeof(int32_t)));
  return likeliest_.Start(stream);
}

// ---------------------------------------------------------------- rows

absl::Status CudaSteps::Run(const StepPass& pass) {
  TANDEM_RETURN_IF_ERROR(SendNumbers(pass));
  layer_.Begin(pass.rows.size());
  TANDEM_RETURN_IF_ERROR(Compute(pass));
  return KeepGuesses(pass);
}

absl::Status CudaSteps::SendNumbers(const StepPass& pass) {
  token_ids_.clear();
  positions_.clear();
  sources_.clear();
  sequences_.clear();
  size_t row = 0;
  for (const StepPass::Sequence& sequence : pass.sequences) {
    for (size_t i = 0; i < sequence.rows; ++i) {
      const StepPass::Row& from = pass.rows[row++];
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

absl::Status CudaSteps::Gather(const Table& table, const int32_t* ids, size_t rows,
                               const ProductRows& to) {
  return tandem::Embed({.table = table.data,
                        .dtype = DType::kF32,
                        .size = table.size,
                        .ids = ids,
                        .rows = rows,
                        .out = to.floats,
                        .out_stride = to.floats_stride,
                        .table_stride = table.stride,
                        .out_bf16 = to.bf16},
                       stream_->get());
}

absl::Status CudaSteps::Embed(const CudaLinear& embedding, const ProductRows& to) {
  return tandem::Embed({.table = embedding.weight,
                        .dtype = embedding.dtype,
                        .size = model_.hidden_size,
                        .ids = numbers_.token_ids(),
                        .rows = layer_.rows(),
                        .out = to.floats,
                        .out_stride = to.floats_stride,
                        .out_bf16 = to.bf16},
                       stream_->get());
}

absl::Status CudaSteps::Qkv(const CudaLayerWeights& weights, const ProductRows& x, size_t index) {
  return layer_.Qkv(weights, x, pages_->Layer(index), numbers_);
}

absl::Status CudaSteps::Attend(const CudaLayerWeights& weights, size_t index, size_t hidden_rows) {
  return layer_.Attend(weights, pages_->Layer(index), numbers_, shape_, hidden_rows);
}

absl::Status CudaSteps::KeepGuesses(const StepPass& pass) {
  const size_t hidden = model_.hidden_size;
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

absl::StatusOr<std::vector<std::vector<Guess>>> CudaSteps::LookAhead(
    std::span<const int32_t> guesses, int32_t count) {
  std::vector<std::vector<Guess>> found(guesses.size());
  for (size_t begin = 0; begin < guesses.size(); begin += kMaxLooks) {
    const size_t rows = std::min(guesses.size() - begin, kMaxLooks);
    TANDEM_RETURN_IF_ERROR(
        LookAhead(guesses.subspan(begin, rows), count, std::span(found).subspan(begin, rows)));
  }
  return found;
}

absl::Status CudaSteps::LookAhead(std::span<const int32_t> guesses, int32_t count,
                                  std::span<std::vector<Guess>> found) {
  const absl::Status enqueued = EnqueueLooks(guesses, count);
  // After a failure too, no copy from or to the pinned memory may still be pending.
  absl::Status done = stream_->Wait();
  TANDEM_RETURN_IF_ERROR(enqueued);
  TANDEM_RETURN_IF_ERROR(done);
  for (size_t i = 0; i < guesses.size(); ++i) {
    found[i] = likeliest_.Of(i, count);
  }
  return absl::OkStatus();
}

absl::Status CudaSteps::EnqueueLooks(std::span<const int32_t> guesses, int32_t count) {
  const size_t rows = guesses.size();
  const size_t hidden = model_.hidden_size;
  std::copy(guesses.begin(), guesses.end(), static_cast<int32_t*>(sent_looks_.data()));
  TANDEM_RETURN_IF_ERROR(stream_->Copy(looks_, sent_looks_.data(), rows * sizeof(int32_t)));
  layer_.Begin(rows);
  if (output_norm_ == nullptr) {
    TANDEM_RETURN_IF_ERROR(Gather({guesses_, hidden, hidden}, looks_, rows, layer_.normed()));
  } else {
    TANDEM_RETURN_IF_ERROR(
        Gather({guesses_, hidden, hidden}, looks_, rows, {layer_.hidden(), hidden, Bf16Rows()}));
    TANDEM_RETURN_IF_ERROR(layer_.Norm(output_norm_, output_));
  }
  TANDEM_RETURN_IF_ERROR(
      layer_.Product(output_, layer_.normed(),
                     {.data = backend_.logits_memory(), .stride = backend_.logits_stride()}));
  return likeliest_.Enqueue(backend_, rows, output_.out_features, count);
}

}  // namespace tandem
