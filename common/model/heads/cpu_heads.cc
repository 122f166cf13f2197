#include "common/model/heads/cpu_heads.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "kernels/add_silu.h"
#include "kernels/matmul.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<CpuHeads>> CpuHeads::Load(const std::filesystem::path& folder,
                                                         const ModelDescription& target,
                                                         const Linear& target_output,
                                                         const CpuBackend* backend,
                                                         ThreadPool* pool) {
  TANDEM_ASSIGN_OR_RETURN(const HeadsDescription heads, HeadsDescription::Load(folder, target));
  TANDEM_ASSIGN_OR_RETURN(auto checkpoint, OpenHeads(folder));
  TANDEM_ASSIGN_OR_RETURN(HeadsWeights weights,
                          HeadsWeights::Load(*checkpoint, heads, target, target_output));
  checkpoint->WillNeed();
  return std::unique_ptr<CpuHeads>(
      new CpuHeads(std::move(checkpoint), std::move(weights), target.hidden_size, backend, pool));
}

CpuHeads::CpuHeads(std::unique_ptr<Checkpoint> checkpoint, HeadsWeights weights, size_t hidden_size,
                   const CpuBackend* backend, ThreadPool* pool)
    : name_(weights.drafter()),
      checkpoint_(std::move(checkpoint)),
      weights_(std::move(weights)),
      hidden_size_(hidden_size),
      backend_(*backend),
      pool_(*pool) {}

void CpuHeads::KeepFeature(size_t place, size_t logits_row) {
  if (place >= features_.size()) features_.resize(place + 1);
  const float* feature = backend_.feature(logits_row);
  features_[place].assign(feature, feature + hidden_size_);
}

absl::Status CpuHeads::Propose(std::span<GuessOrder> orders) {
  if (orders.empty()) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(checkpoint_->CheckWhole());
  const size_t num_heads = std::min<size_t>(DeepestOf(orders), weights_.heads.size());
  if (num_heads == 0) return absl::OkStatus();
  ScratchRows& rows = Transform(orders, num_heads);
  ComputeLogits(rows, orders.size(), num_heads);
  std::vector<std::vector<std::vector<Guess>>> guesses(orders.size());
  for (auto& of_order : guesses) of_order.resize(num_heads);
  pool_.ParallelFor(static_cast<int64_t>(orders.size() * num_heads), [&](int64_t task) {
    const auto row = static_cast<size_t>(task);
    const size_t i = row % orders.size();
    guesses[i][row / orders.size()] = LikeliestOf(row, GuessesOf(orders[i]));
  });
  for (size_t i = 0; i < orders.size(); ++i) {
    orders[i].tree = GrowGuessTree(guesses[i], orders[i].limits,
                                   AdjustmentBy(orders[i].transforms, /*sharpness=*/1));
  }
  return absl::OkStatus();
}

ScratchRows& CpuHeads::Transform(std::span<const GuessOrder> orders, size_t num_heads) {
  const size_t num_orders = orders.size();
  ScratchRows* from = &rows_[0];
  ScratchRows* to = &rows_[1];
  from->Resize(num_heads * num_orders, hidden_size_);
  to->Resize(num_heads * num_orders, hidden_size_);
  for (size_t row = 0; row < num_heads * num_orders; ++row) {
    const std::vector<float>& feature = features_[orders[row % num_orders].place];
    std::copy(feature.begin(), feature.end(), from->row(row));
  }
  for (size_t layer = 0; layer < weights_.heads.front().layers.size(); ++layer) {
    std::vector<MatMulArgs> products;
    for (size_t head = 0; head < num_heads; ++head) {
      const Linear& linear = weights_.heads[head].layers[layer];
      products.push_back(linear.Product(from->row(head * num_orders), from->stride(), num_orders,
                                        to->row(head * num_orders), to->stride()));
    }
    MatMul(products, pool_);
    AddSilu({.x = from->row(0),
             .x_stride = from->stride(),
             .y = to->row(0),
             .y_stride = to->stride(),
             .rows = num_heads * num_orders,
             .size = hidden_size_});
    std::swap(from, to);
  }
  return *from;
}

void CpuHeads::ComputeLogits(ScratchRows& rows, size_t num_orders, size_t num_heads) {
  logits_.Resize(num_heads * num_orders, weights_.heads.front().output.out_features);
  // Heads with one output product are its rows, so that it is read once.
  const size_t num_products = weights_.shares_output ? 1 : num_heads;
  const size_t rows_of_product = num_orders * num_heads / num_products;
  std::vector<MatMulArgs> products;
  for (size_t i = 0; i < num_products; ++i) {
    const Linear& linear = weights_.heads[i].output;
    products.push_back(linear.Product(rows.row(i * num_orders), rows.stride(), rows_of_product,
                                      logits_.row(i * num_orders), logits_.stride()));
  }
  MatMul(products, pool_);
}

std::vector<Guess> CpuHeads::LikeliestOf(size_t row, int32_t count) {
  const std::span<const float> logits(logits_.row(row), weights_.heads.front().output.out_features);
  std::vector<Guess> guesses = LikeliestGuesses(logits, count);
  for (Guess& guess : guesses) guess = OfTarget(weights_.token_map, guess);
  return guesses;
}

}  // namespace tandem
