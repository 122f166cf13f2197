#include "common/model/cuda/weight_uploader.h"

#include <algorithm>
#include <cstring>

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

}  // namespace

absl::StatusOr<WeightUploader> WeightUploader::Create(
    DeviceArena& arena, const DeviceStream& stream,
    const std::function<void(uint64_t)>& on_progress) {
  WeightUploader uploader(arena, stream, on_progress);
  for (Piece& piece : uploader.pieces_) {
    TANDEM_ASSIGN_OR_RETURN(piece.memory, PinnedMemory::Create(kPieceBytes));
    TANDEM_ASSIGN_OR_RETURN(piece.fetched, DeviceEvent::Create());
  }
  return uploader;
}

uint64_t WeightUploader::Bytes(const std::vector<float>& values) {
  return DeviceArena::Rounded(values.size() * sizeof(float));
}

uint64_t WeightUploader::Bytes(std::span<const Linear* const> linears) {
  return DeviceArena::Rounded(WeightBytes(linears)) + Bytes(BiasesOf(linears));
}

uint64_t WeightUploader::Bytes(const Linear& linear) {
  const Linear* const one = &linear;
  return Bytes({&one, 1});
}

absl::StatusOr<const float*> WeightUploader::Copy(const std::vector<float>& values,
                                                  const char* what) {
  if (values.empty()) return nullptr;
  const size_t bytes = values.size() * sizeof(float);
  TANDEM_ASSIGN_OR_RETURN(float* const to, arena_->Take<float>(values.size(), what));
  TANDEM_RETURN_IF_ERROR(CopyBytes(to, values.data(), bytes));
  return to;
}

absl::StatusOr<CudaLinear> WeightUploader::Copy(std::span<const Linear* const> linears,
                                                const char* what) {
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

absl::StatusOr<CudaLinear> WeightUploader::Copy(const Linear& linear, const char* what) {
  const Linear* const one = &linear;
  return Copy({&one, 1}, what);
}

absl::Status WeightUploader::CopyBytes(void* to, const void* from, size_t bytes) {
  for (size_t done = 0; done < bytes; done += kPieceBytes) {
    TANDEM_RETURN_IF_ERROR(CopyPiece(static_cast<char*>(to) + done,
                                     static_cast<const char*>(from) + done,
                                     std::min(kPieceBytes, bytes - done)));
  }
  return absl::OkStatus();
}

absl::Status WeightUploader::CopyPiece(void* to, const void* from, size_t bytes) {
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

}  // namespace tandem
