#include "bench/kernels/device_sampling.h"

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/support/device_timer.h"
#include "common/status.h"
#include "kernels/device/device_arena.h"
#include "kernels/sampling/accept_reject.h"
#include "kernels/sampling/draw.h"
#include "kernels/sampling/transform/transform.h"

namespace tandem::bench {
namespace {

constexpr int32_t kDraftLength = 4;

struct Mode {
  std::string name;
  RowSampling sampling;
};
const std::vector<Mode>& Modes() {
  static const std::vector<Mode> modes = {
      {"temperature", {.temperature = 0.8F}},
      {"top-k 40", {.temperature = 0.8F, .top_k = 40}},
      {"top-p 0.9", {.temperature = 0.8F, .top_p = 0.9F}},
      {"top-k 40, top-p 0.9", {.temperature = 0.8F, .top_p = 0.9F, .top_k = 40}},
      {"min-p 0.05", {.temperature = 0.8F, .min_p = 0.05F}},
  };
  return modes;
}

// Device memory of one measurement.
class Rows {
 public:
  Rows(size_t vocabulary_size, size_t rows, const DeviceStream* stream)
      : size_(vocabulary_size), rows_(rows), stream_(*stream) {}

  absl::Status Fill() {
    const size_t of_rows = DeviceArena::Rounded(rows_ * size_ * sizeof(float));
    TANDEM_ASSIGN_OR_RETURN(arena_, DeviceArena::Create(3 * of_rows + (size_t{1} << 20)));
    TANDEM_ASSIGN_OR_RETURN(logits_, arena_.Take<float>(rows_ * size_, "logits"));
    TANDEM_ASSIGN_OR_RETURN(adjusted_, arena_.Take<float>(rows_ * size_, "adjusted logits"));
    TANDEM_ASSIGN_OR_RETURN(log_probs_, arena_.Take<float>(rows_ * size_, "log-probabilities"));
    TANDEM_ASSIGN_OR_RETURN(not_finite_, arena_.Take<int32_t>(rows_, "flags"));
    TANDEM_ASSIGN_OR_RETURN(token_ids_, arena_.Take<int32_t>(rows_, "tokens"));
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 3);
    std::vector<float> logits(rows_ * size_);
    for (float& logit : logits) logit = normal(random);
    TANDEM_RETURN_IF_ERROR(Send(logits_, logits));
    TANDEM_ASSIGN_OR_RETURN(adjustments_, Upload(std::vector<RowAdjustment>(rows_), "adjustments"));
    for (const Mode& mode : Modes()) {
      TANDEM_ASSIGN_OR_RETURN(const RowSampling* const params,
                              Upload(std::vector<RowSampling>(rows_, mode.sampling), "parameters"));
      samplings_.push_back(params);
    }
    for (const RowDraw how : {RowDraw::kGreedy, RowDraw::kCoupled, RowDraw::kTarget}) {
      std::vector<RowToDraw> draws(rows_, RowToDraw{.how = how, .key = {}});
      for (size_t row = 0; row < rows_; ++row) draws[row].key.position = row;
      TANDEM_ASSIGN_OR_RETURN(const RowToDraw* const sent, Upload(draws, "draws"));
      draws_.push_back(sent);
    }
    return MakeBlocks();
  }

  // Returns the work to measure, by name.
  std::vector<std::pair<std::string, std::function<absl::Status()>>> Work() const {
    std::vector<std::pair<std::string, std::function<absl::Status()>>> work;
    const CudaStream stream = stream_.get();
    work.emplace_back("adjust", [this, stream] {
      return AdjustLogits({.rows = rows_,
                           .vocabulary_size = size_,
                           .stride = size_,
                           .adjustments = adjustments_,
                           .logits = logits_,
                           .adjusted = adjusted_,
                           .not_finite = not_finite_},
                          stream);
    });
    for (size_t i = 0; i < samplings_.size(); ++i) {
      work.emplace_back("log-probs, " + Modes()[i].name, [this, stream, params = samplings_[i]] {
        return LogProbs(Args(params), stream);
      });
    }
    const std::vector<std::string> names = {"draw, greedy", "draw, coupled", "draw, inverse CDF"};
    for (size_t i = 0; i < draws_.size(); ++i) {
      work.emplace_back(names[i], [this, stream, draws = draws_[i]] {
        return DrawTokens({.rows = rows_,
                           .vocabulary_size = size_,
                           .stride = size_,
                           .draws = draws,
                           .values = draws == draws_[0] ? adjusted_ : log_probs_,
                           .not_finite = not_finite_,
                           .token_ids = token_ids_},
                          stream);
      });
    }
    work.emplace_back("argmax", [this, stream] {
      return Argmax({.rows = rows_,
                     .vocabulary_size = size_,
                     .stride = size_,
                     .logits = logits_,
                     .token_ids = token_ids_},
                    stream);
    });
    if (blocks_ != nullptr) {
      work.emplace_back("accept/reject, K = 4, drawn", [this, stream] {
        return AcceptRejectBlocks({.num_blocks = rows_ / (kDraftLength + 1),
                                   .vocabulary_size = size_,
                                   .stride = size_,
                                   .blocks = blocks_,
                                   .values = log_probs_,
                                   .not_finite = not_finite_,
                                   .row_token_ids = token_ids_,
                                   .verdicts = verdicts_},
                                  stream);
      });
    }
    return work;
  }

 private:
  DeviceLogProbsArgs Args(const RowSampling* params) const {
    return {.rows = rows_,
            .vocabulary_size = size_,
            .stride = size_,
            .params = params,
            .adjusted = adjusted_,
            .log_probs = log_probs_};
  }

  // Every block drafts the tokens that its own rows would draw: all of them are accepted.
  absl::Status MakeBlocks() {
    const size_t num_blocks = rows_ / (kDraftLength + 1);
    if (num_blocks == 0) return absl::OkStatus();
    std::vector<BlockToVerify> blocks(num_blocks);
    TANDEM_ASSIGN_OR_RETURN(const int32_t* const drafted,
                            Upload(std::vector<int32_t>(rows_, 17), "draft tokens"));
    for (size_t i = 0; i < num_blocks; ++i) {
      blocks[i].first_row = static_cast<int32_t>(i) * (kDraftLength + 1);
      blocks[i].num_drafted = kDraftLength;
      blocks[i].how = RowDraw::kPlain;
      blocks[i].draft_token_ids = drafted;
      blocks[i].draft_log_probs = log_probs_ + static_cast<size_t>(blocks[i].first_row) * size_;
    }
    TANDEM_ASSIGN_OR_RETURN(blocks_, Upload(blocks, "blocks"));
    TANDEM_ASSIGN_OR_RETURN(verdicts_, arena_.Take<DeviceVerdict>(num_blocks, "verdicts"));
    return absl::OkStatus();
  }

  template <typename T>
  absl::Status Send(T* to, const std::vector<T>& values) {
    TANDEM_RETURN_IF_ERROR(stream_.Copy(to, values.data(), values.size() * sizeof(T)));
    return stream_.Wait();
  }
  template <typename T>
  absl::StatusOr<const T*> Upload(const std::vector<T>& values, const char* what) {
    TANDEM_ASSIGN_OR_RETURN(T* const to, arena_.Take<T>(values.size(), what));
    TANDEM_RETURN_IF_ERROR(Send(to, values));
    return to;
  }

  const size_t size_;
  const size_t rows_;
  const DeviceStream& stream_;
  DeviceArena arena_;
  float* logits_ = nullptr;
  float* adjusted_ = nullptr;
  float* log_probs_ = nullptr;
  int32_t* not_finite_ = nullptr;
  int32_t* token_ids_ = nullptr;
  const RowAdjustment* adjustments_ = nullptr;
  std::vector<const RowSampling*> samplings_;
  std::vector<const RowToDraw*> draws_;
  const BlockToVerify* blocks_ = nullptr;
  DeviceVerdict* verdicts_ = nullptr;
};

}  // namespace

absl::StatusOr<nlohmann::json> MeasureSampling(size_t vocabulary_size, size_t rows,
                                               size_t repeats) {
  TANDEM_ASSIGN_OR_RETURN(const DeviceStream stream, DeviceStream::Create());
  Rows memory(vocabulary_size, rows, &stream);
  TANDEM_RETURN_IF_ERROR(memory.Fill());
  nlohmann::json seconds = nlohmann::json::object();
  for (const auto& [name, enqueue] : memory.Work()) {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<DeviceSeconds> measured,
                            MeasureOnDevice(stream, repeats, {enqueue}));
    seconds[name] = MedianOf(measured[0].device);
  }
  return nlohmann::json{{"vocabulary_size", vocabulary_size}, {"rows", rows}, {"seconds", seconds}};
}

}  // namespace tandem::bench
