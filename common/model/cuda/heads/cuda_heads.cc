#include "common/model/cuda/heads/cuda_heads.h"

#include <algorithm>
#include <utility>

#include "common/model/cuda/weight_uploader.h"
#include "common/model/heads/heads_description.h"
#include "common/status.h"
#include "kernels/add_silu.h"
#include "kernels/embedding.h"

namespace tandem {
namespace {

// Returns the bytes of device memory that the weights take. The target has its output product
// already.
uint64_t BytesOf(const HeadsWeights& weights) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < weights.heads.size(); ++i) {
    for (const Linear& layer : weights.heads[i].layers) bytes += WeightUploader::Bytes(layer);
    if (weights.uses_target_output || (weights.shares_output && i > 0)) continue;
    bytes += WeightUploader::Bytes(weights.heads[i].output);
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaHeads>> CudaHeads::Load(const std::filesystem::path& folder,
                                                           const ModelDescription& target,
                                                           const Linear& target_output,
                                                           const CudaBackend* backend,
                                                           const Options& options) {
  TANDEM_ASSIGN_OR_RETURN(const HeadsDescription heads, HeadsDescription::Load(folder, target));
  TANDEM_ASSIGN_OR_RETURN(auto checkpoint, OpenHeads(folder));
  TANDEM_ASSIGN_OR_RETURN(HeadsWeights weights,
                          HeadsWeights::Load(*checkpoint, heads, target, target_output));
  checkpoint->WillNeed();
  return std::unique_ptr<CudaHeads>(
      new CudaHeads(std::move(checkpoint), std::move(weights), target, backend, options));
}

CudaHeads::CudaHeads(std::unique_ptr<Checkpoint> checkpoint, HeadsWeights weights,
                     const ModelDescription& target, const CudaBackend* backend,
                     const Options& options)
    : name_(weights.drafter()),
      num_heads_(weights.heads.size()),
      hidden_size_(target.hidden_size),
      backend_(*backend),
      options_(options),
      weight_bytes_(BytesOf(weights)),
      checkpoint_(std::move(checkpoint)),
      weights_(std::move(weights)) {}

absl::Status CudaHeads::LayOut(const MemoryTaker& take) {
  TANDEM_RETURN_IF_ERROR(
      take(&features_, options_.max_places * hidden_size_, "features of the slots"));
  TANDEM_RETURN_IF_ERROR(take(&places_, kMaxRows, "places of features"));
  for (ProductRows& rows : rows_) {
    TANDEM_RETURN_IF_ERROR(LayOutRows(&rows, kMaxRows, hidden_size_,
                                      NumBf16Parts(options_.exact_activations), "rows of the heads",
                                      take));
  }
  return likeliest_.LayOut(take);
}

absl::Status CudaHeads::Start(const DeviceStream* stream) {
  stream_ = stream;
  TANDEM_ASSIGN_OR_RETURN(sent_places_, PinnedMemory::Create(kMaxRows * sizeof(int32_t)));
  return likeliest_.Start(stream);
}

absl::Status CudaHeads::Upload(const CudaWeights& target, DeviceArena& arena,
                               const std::function<void(uint64_t)>& on_progress) {
  TANDEM_ASSIGN_OR_RETURN(WeightUploader uploader,
                          WeightUploader::Create(arena, *stream_, on_progress));
  for (const HeadWeights& from : weights_.heads) {
    Head head;
    for (const Linear& layer : from.layers) {
      TANDEM_ASSIGN_OR_RETURN(head.layers.emplace_back(),
                              uploader.Copy(layer, "a layer of a head"));
    }
    if (weights_.uses_target_output) {
      head.output = target.output;
    } else if (weights_.shares_output && !heads_.empty()) {
      head.output = heads_.front().output;
    } else {
      TANDEM_ASSIGN_OR_RETURN(head.output, uploader.Copy(from.output, "an output of a head"));
    }
    heads_.push_back(std::move(head));
  }
  TANDEM_RETURN_IF_ERROR(stream_->Wait());
  TANDEM_RETURN_IF_ERROR(checkpoint_->CheckWhole());
  weights_.heads.clear();
  checkpoint_.reset();
  return absl::OkStatus();
}

void CudaHeads::KeepFeature(size_t place, size_t logits_row) {
  kept_.Update(stream_->Copy(features_ + place * hidden_size_, backend_.feature(logits_row),
                             hidden_size_ * sizeof(float)));
}

absl::Status CudaHeads::Propose(std::span<GuessOrder> orders) {
  TANDEM_RETURN_IF_ERROR(std::exchange(kept_, absl::OkStatus()));
  const size_t num_heads = std::min<size_t>(DeepestOf(orders), heads_.size());
  if (num_heads == 0) return absl::OkStatus();
  const size_t most = kMaxRows / num_heads;
  for (size_t begin = 0; begin < orders.size(); begin += most) {
    const std::span<GuessOrder> part = orders.subspan(begin, std::min(most, orders.size() - begin));
    const absl::Status enqueued = Enqueue(part, num_heads);
    // After a failure too, no copy from or to the pinned memory may still be pending.
    const absl::Status done = stream_->Wait();
    TANDEM_RETURN_IF_ERROR(enqueued);
    TANDEM_RETURN_IF_ERROR(done);
    Grow(part, num_heads);
  }
  return absl::OkStatus();
}

absl::Status CudaHeads::Enqueue(std::span<const GuessOrder> orders, size_t num_heads) {
  const size_t rows = orders.size() * num_heads;
  auto* const places = static_cast<int32_t*>(sent_places_.data());
  for (size_t row = 0; row < rows; ++row) {
    places[row] = static_cast<int32_t>(orders[row % orders.size()].place);
  }
  TANDEM_RETURN_IF_ERROR(stream_->Copy(places_, places, rows * sizeof(*places)));
  const ProductRows* last = nullptr;
  TANDEM_RETURN_IF_ERROR(Transform(orders.size(), num_heads, &last));
  TANDEM_RETURN_IF_ERROR(ComputeLogits(*last, orders.size(), num_heads));
  return likeliest_.Enqueue(backend_, rows, heads_.front().output.out_features,
                            MostGuessesOf(orders));
}

absl::Status CudaHeads::Transform(size_t num_orders, size_t num_heads, const ProductRows** last) {
  const size_t rows = num_orders * num_heads;
  const ProductRows* from = &rows_[0];
  const ProductRows* to = &rows_[1];
  TANDEM_RETURN_IF_ERROR(Embed({.table = features_,
                                .dtype = DType::kF32,
                                .size = hidden_size_,
                                .ids = places_,
                                .rows = rows,
                                .out = from->floats,
                                .out_stride = from->floats_stride,
                                .out_bf16 = from->bf16},
                               stream_->get()));
  for (size_t layer = 0; layer < heads_.front().layers.size(); ++layer) {
    for (size_t head = 0; head < num_heads; ++head) {
      const size_t first = head * num_orders;
      const ProductRows out = to->FromRow(first);
      TANDEM_RETURN_IF_ERROR(
          MultiplyRows(heads_[head].layers[layer], from->FromRow(first), num_orders,
                       {.data = out.floats, .stride = out.floats_stride}, stream_->get()));
    }
    TANDEM_RETURN_IF_ERROR(AddSilu({.x = from->floats,
                                    .x_stride = from->floats_stride,
                                    .y = to->floats,
                                    .y_stride = to->floats_stride,
                                    .rows = rows,
                                    .size = hidden_size_,
                                    .out_bf16 = to->bf16},
                                   stream_->get()));
    std::swap(from, to);
  }
  *last = from;
  return absl::OkStatus();
}

absl::Status CudaHeads::ComputeLogits(const ProductRows& rows, size_t num_orders,
                                      size_t num_heads) {
  const size_t stride = backend_.logits_stride();
  // Heads with one output product are its rows, so that it is read once.
  const size_t num_products = weights_.shares_output ? 1 : num_heads;
  const size_t rows_of_product = num_orders * num_heads / num_products;
  for (size_t i = 0; i < num_products; ++i) {
    const size_t first = i * rows_of_product;
    TANDEM_RETURN_IF_ERROR(MultiplyRows(
        heads_[i].output, rows.FromRow(first), rows_of_product,
        {.data = backend_.logits_memory() + first * stride, .stride = stride}, stream_->get()));
  }
  return absl::OkStatus();
}

void CudaHeads::Grow(std::span<GuessOrder> orders, size_t num_heads) const {
  std::vector<std::vector<Guess>> guesses(num_heads);
  for (size_t i = 0; i < orders.size(); ++i) {
    for (size_t head = 0; head < num_heads; ++head) {
      guesses[head] = likeliest_.Of(head * orders.size() + i, GuessesOf(orders[i]));
      for (Guess& guess : guesses[head]) guess = OfTarget(weights_.token_map, guess);
    }
    orders[i].tree = GrowGuessTree(guesses, orders[i].limits,
                                   AdjustmentBy(orders[i].transforms, /*sharpness=*/1));
  }
}

}  // namespace tandem
