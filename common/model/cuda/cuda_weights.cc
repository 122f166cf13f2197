#include "common/model/cuda/cuda_weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "common/status.h"

namespace tandem {
namespace {

constexpr size_t kPieceBytes = size_t{16} << 20;

size_t WeightBytes(const Linear& linear) {
  return linear.out_features * linear.in_features * SizeOf(linear.dtype);
}

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
    for (size_t done = 0; done < count * sizeof(T); done += kPieceBytes) {
      TANDEM_RETURN_IF_ERROR(CopyPiece(reinterpret_cast<char*>(to) + done,
                                       reinterpret_cast<const char*>(from) + done,
                                       std::min(kPieceBytes, count * sizeof(T) - done)));
    }
    return to;
  }

  absl::StatusOr<const float*> Copy(const std::vector<float>& values, const char* what) {
    if (values.empty()) return nullptr;
    return Copy(values.data(), values.size(), what);
  }

  absl::StatusOr<CudaLinear> Copy(const Linear& linear, const char* what) {
    CudaLinear copy = {.dtype = linear.dtype,
                       .out_features = linear.out_features,
                       .in_features = linear.in_features};
    TANDEM_ASSIGN_OR_RETURN(
        copy.weight, Copy(static_cast<const char*>(linear.weight), WeightBytes(linear), what));
    TANDEM_ASSIGN_OR_RETURN(copy.bias, Copy(linear.bias, what));
    return copy;
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
  const auto linear = [&](const Linear& it) {
    visit(WeightBytes(it));
    visit(it.bias.size() * sizeof(float));
  };
  linear(weights.embedding);
  for (const LayerWeights& layer : weights.layers) {
    for (const std::vector<float>* norm :
         {&layer.attention_norm, &layer.query_norm, &layer.key_norm, &layer.mlp_norm}) {
      visit(norm->size() * sizeof(float));
    }
    for (const Linear* it : {&layer.query, &layer.key, &layer.value, &layer.attention_output,
                             &layer.gate, &layer.up, &layer.down}) {
      linear(*it);
    }
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
    TANDEM_ASSIGN_OR_RETURN(to.query, uploader.Copy(layer.query, "q_proj"));
    TANDEM_ASSIGN_OR_RETURN(to.key, uploader.Copy(layer.key, "k_proj"));
    TANDEM_ASSIGN_OR_RETURN(to.value, uploader.Copy(layer.value, "v_proj"));
    TANDEM_ASSIGN_OR_RETURN(to.query_norm, uploader.Copy(layer.query_norm, "a norm of heads"));
    TANDEM_ASSIGN_OR_RETURN(to.key_norm, uploader.Copy(layer.key_norm, "a norm of heads"));
    TANDEM_ASSIGN_OR_RETURN(to.attention_output, uploader.Copy(layer.attention_output, "o_proj"));
    TANDEM_ASSIGN_OR_RETURN(to.mlp_norm, uploader.Copy(layer.mlp_norm, "a norm"));
    TANDEM_ASSIGN_OR_RETURN(to.gate, uploader.Copy(layer.gate, "gate_proj"));
    TANDEM_ASSIGN_OR_RETURN(to.up, uploader.Copy(layer.up, "up_proj"));
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
