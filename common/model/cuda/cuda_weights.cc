#include "common/model/cuda/cuda_weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "common/status.h"

namespace tandem {
namespace {

constexpr size_t kPieceBytes = size_t{16} << 20;

size_t WeightBytes(const Linear& linear) {
  return linear.out_features * linear.in_features * SizeOf(linear.dtype);
}

size_t WeightBytes(std::span<const Linear* const> linears) {
  size_t bytes = 0;
  for (const Linear* linear : linears) bytes += WeightBytes(*linear);
  return bytes;
}

// Returns the biases of linears one after the other, with 0 for a linear that has none. Empty: none
// of them has any.
std::vector<float> BiasesOf(std::span<const Linear* const> linears) {
  std::vector<float> bias;
  bool any = false;
  for (const Linear* linear : linears) {
    any = any || !linear->bias.empty();
    bias.insert(bias.end(), linear->bias.begin(), linear->bias.end());
    if (linear->bias.empty()) bias.insert(bias.end(), linear->out_features, 0.0f);
  }
  return any ? bias : std::vector<float>();
}

std::array<const Linear*, 3> Qkv(const LayerWeights& layer) {
  return {&layer.query, &layer.key, &layer.value};
}
std::array<const Linear*, 2> GateUp(const LayerWeights& layer) { return {&layer.gate, &layer.up}; }

// Copies host memory to device memory piece by piece.
class Uploader {
 public:
  static absl::StatusOr<Uploader> Create(DeviceArena& arena, const DeviceStream& stream,
                                         const std::function<void(uint64_t)>& on_progress) {
    Uploader uploader(arena, stream, on_progress);
    for (Piece& piece : uploader.pieces_) {
      TANDEM_ASSIGN_OR_RETURN(piece.memory, PinnedMemory::Create(kPieceBytes));
      TANDEM_ASSIGN_OR_RETURN(piece.fetched, DeviceEvent::Create());
    }
    return uploader;
  }

  // The device may still be fetching from the pieces.
  ~Uploader() { stream_->Wait().IgnoreError(); }
  Uploader(Uploader&&) = default;
  Uploader& operator=(Uploader&&) = default;

  template <typename T>
  absl::StatusOr<const T*> Copy(const T* from, size_t count, const char* what) {
    TANDEM_ASSIGN_OR_RETURN(T* const to, arena_->Take<T>(count, what));
    TANDEM_RETURN_IF_ERROR(CopyBytes(to, from, count * sizeof(T)));
    return to;
  }

  absl::StatusOr<const float*> Copy(const std::vector<float>& values, const char* what) {
    if (values.empty()) return nullptr;
    return Copy(values.data(), values.size(), what);
  }

  // Copies linears that take the same rows as one, with the features of each after those of the one
  // before. PRECOND: they have one type.
  absl::StatusOr<CudaLinear> Copy(std::span<const Linear* const> linears, const char* what) {
    CudaLinear copy = {.dtype = linears[0]->dtype, .in_features = linears[0]->in_features};
    for (const Linear* linear : linears) {
      copy.out_features += linear->out_features;
    }
    TANDEM_ASSIGN_OR_RETURN(char* to, arena_->Take<char>(WeightBytes(linears), what));
    copy.weight = to;
    for (const Linear* linear : linears) {
      const size_t bytes = WeightBytes(*linear);
      TANDEM_RETURN_IF_ERROR(CopyBytes(to, linear->weight, bytes));
      to += bytes;
    }
    const std::vector<float> bias = BiasesOf(linears);
    TANDEM_ASSIGN_OR_RETURN(copy.bias, Copy(bias, what));
    return copy;
  }
  absl::StatusOr<CudaLinear> Copy(const Linear& linear, const char* what) {
    const Linear* const one = &linear;
    return Copy({&one, 1}, what);
  }

 private:
  struct Piece {
    PinnedMemory memory;
    DeviceEvent fetched;
    bool is_used = false;
  };

  Uploader(DeviceArena& arena, const DeviceStream& stream,
           const std::function<void(uint64_t)>& on_progress)
      : arena_(&arena), stream_(&stream), on_progress_(&on_progress) {}

  absl::Status CopyBytes(void* to, const void* from, size_t bytes) {
    for (size_t done = 0; done < bytes; done += kPieceBytes) {
      TANDEM_RETURN_IF_ERROR(CopyPiece(static_cast<char*>(to) + done,
                                       static_cast<const char*>(from) + done,
                                       std::min(kPieceBytes, bytes - done)));
    }
    return absl::OkStatus();
  }

  absl::Status CopyPiece(void* to, const void* from, size_t bytes) {
    Piece& piece = pieces_[turn_++ % pieces_.size()];
    if (piece.is_used) TANDEM_RETURN_IF_ERROR(piece.fetched.Wait());
    std::memcpy(piece.memory.data(), from, bytes);
    TANDEM_RETURN_IF_ERROR(stream_->Copy(to, piece.memory.data(), bytes));
    TANDEM_RETURN_IF_ERROR(piece.fetched.Record(*stream_));
    piece.is_used = true;
    copied_ += bytes;
    if (*on_progress_) (*on_progress_)(copied_);
    return absl::OkStatus();
  }

  DeviceArena* arena_;
  const DeviceStream* stream_;
  const std::function<void(uint64_t)>* on_progress_;
  std::array<Piece, 2> pieces_;
  size_t turn_ = 0;
  uint64_t copied_ = 0;
};

// Calls `visit` with the bytes of each tensor, in no order.
template <typename Visit>
void VisitSizes(const ModelWeights& weights, const Visit& visit) {
  const auto linears = [&](std::span<const Linear* const> them) {
    visit(WeightBytes(them));
    visit(BiasesOf(them).size() * sizeof(float));
  };
  const auto linear = [&](const Linear& it) {
    const Linear* const one = &it;
    linears({&one, 1});
  };
  linear(weights.embedding);
  for (const LayerWeights& layer : weights.layers) {
    for (const std::vector<float>* norm :
         {&layer.attention_norm, &layer.query_norm, &layer.key_norm, &layer.mlp_norm}) {
      visit(norm->size() * sizeof(float));
    }
    linears(Qkv(layer));
    linears(GateUp(layer));
    linear(layer.attention_output);
    linear(layer.down);
  }
  visit(weights.final_norm.size() * sizeof(float));
  if (weights.output.weight != weights.embedding.weight) linear(weights.output);
}

}  // namespace

uint64_t CudaWeights::Bytes(const ModelWeights& weights) {
  uint64_t bytes = 0;
  VisitSizes(weights, [&](size_t size) { bytes += DeviceArena::Rounded(size); });
  return bytes;
}

absl::StatusOr<CudaWeights> CudaWeights::Upload(const ModelWeights& weights, DeviceArena& arena,
                                                const DeviceStream& stream,
                                                const std::function<void(uint64_t)>& on_progress) {
  TANDEM_ASSIGN_OR_RETURN(Uploader uploader, Uploader::Create(arena, stream, on_progress));
  CudaWeights copy;
  TANDEM_ASSIGN_OR_RETURN(copy.embedding, uploader.Copy(weights.embedding, "the embedding"));
  for (const LayerWeights& layer : weights.layers) {
    CudaLayerWeights to;
    TANDEM_ASSIGN_OR_RETURN(to.attention_norm, uploader.Copy(layer.attention_norm, "a norm"));
    TANDEM_ASSIGN_OR_RETURN(to.qkv, uploader.Copy(Qkv(layer), "q_proj, k_proj and v_proj"));
    TANDEM_ASSIGN_OR_RETURN(to.query_norm, uploader.Copy(layer.query_norm, "a norm of heads"));
    TANDEM_ASSIGN_OR_RETURN(to.key_norm, uploader.Copy(layer.key_norm, "a norm of heads"));
    TANDEM_ASSIGN_OR_RETURN(to.attention_output, uploader.Copy(layer.attention_output, "o_proj"));
    TANDEM_ASSIGN_OR_RETURN(to.mlp_norm, uploader.Copy(layer.mlp_norm, "a norm"));
    TANDEM_ASSIGN_OR_RETURN(to.gate_up, uploader.Copy(GateUp(layer), "gate_proj and up_proj"));
    TANDEM_ASSIGN_OR_RETURN(to.down, uploader.Copy(layer.down, "down_proj"));
    copy.layers.push_back(to);
  }
  TANDEM_ASSIGN_OR_RETURN(copy.final_norm, uploader.Copy(weights.final_norm, "a norm"));
  if (weights.output.weight == weights.embedding.weight) {
    copy.output = copy.embedding;
  } else {
    TANDEM_ASSIGN_OR_RETURN(copy.output, uploader.Copy(weights.output, "lm_head"));
  }
  TANDEM_RETURN_IF_ERROR(stream.Wait());
  return copy;
}

}  // namespace tandem
