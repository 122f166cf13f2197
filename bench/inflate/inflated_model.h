// Makes a large model from a small trained one. The large model has the costs of its own shape, but
// the text and the acceptance of drafts of the small model. Benchmarks use it where no large
// trained pair is available.
//
// Everything that is added is computed in full and contributes nothing:
//   width       hidden dimensions beyond the small model's stay 0, because the weights that write
//               to them are 0. RMSNorm then takes its mean over more dimensions, so norm weights
//               are scaled by sqrt(H / H') and eps by H / H'
//   heads       pair i of a small head becomes pair i * D' / D of a large head, which has the same
//               rotary frequency. Queries are scaled by sqrt(D' / D). Added heads, in each group
//               and in whole added groups, have weights of 0 in the output projection
//   MLP         added dimensions have weights of 0 in the down projection
//   layers      added layers come last. Their output and down projections are 0
//   vocabulary  added tokens get a logit of about -2^24. One hidden dimension is 2^-100 for every
//               token, and only the final norm enlarges it
// If H' / H and D' / D are powers of 4, all scales are powers of 2, and the logits equal the small
// model's up to the rounding of sums. Otherwise the scaled weights are rounded to their type.
#ifndef TANDEM_BENCH_INFLATE_INFLATED_MODEL_H_
#define TANDEM_BENCH_INFLATE_INFLATED_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/model_description.h"

namespace tandem {

struct InflatedShape {
  size_t vocabulary_size = 0;
  size_t hidden_size = 0;
  size_t intermediate_size = 0;
  size_t num_layers = 0;
  size_t num_heads = 0;
  size_t num_kv_heads = 0;
  size_t head_size = 0;
};

// The first added hidden dimension pushes the logits of added tokens down. This is its value for
// every token of the model. The square of it is zero.
inline constexpr float kMark = 0x1p-100f;
// The weight of that dimension in the final norm, and that of added tokens for it.
inline constexpr float kMarkWeight = 0x1p110f;
inline constexpr float kAddedToken = -0x1p14f;

// Return the shapes of Llama-3.2-1B and 3B.
InflatedShape Llama1B();
InflatedShape Llama3B();

// INVALID_ARGUMENT: the shape is too small for the model, and the message says where.
absl::Status CheckInflation(const ModelDescription& config, const InflatedShape& shape);
// Returns true if all scales are powers of 2.
bool IsExact(const ModelDescription& config, const InflatedShape& shape);

// Writes the inflated model of `from`, whose weights are BF16 or F32, to the new folder `to`. The
// tokenizer is the same, except for added entries that no text leads to. `on_progress` gets the
// number of written bytes and the number of all bytes. Errors name the file and the field.
absl::Status InflateModel(const std::filesystem::path& from, const std::filesystem::path& to,
                          const InflatedShape& shape,
                          const std::function<void(uint64_t done, uint64_t all)>& on_progress);

}  // namespace tandem

#endif  // TANDEM_BENCH_INFLATE_INFLATED_MODEL_H_
