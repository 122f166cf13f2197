// Makes a large model of a small trained one: the costs are those of the large shape, the text and
// the acceptance of drafts those of the small model. For benchmarks where no large trained pair can
// be had.
//
// Everything that is added is computed in full and contributes nothing:
//   width     hidden dimensions beyond the small model's stay 0: what writes to them has weights of
//             0. RMSNorm's mean is over more dimensions then, so norm weights are scaled by
//             sqrt(H / H') and eps by H / H'
//   heads     a small head's dimensions lie where their rotary frequencies do: pair i of a small
//             head is pair i * D' / D of a large one; queries are scaled by sqrt(D' / D). Heads that
//             are added, in each group and whole groups, meet weights of 0 in the output projection
//   MLP       dimensions that are added meet weights of 0 in the down projection
//   layers    those that are added come last, with output and down projections of 0
//   vocabulary  tokens that are added get a logit of some -2^24: one hidden dimension is 2^-100 for
//             every token, which only the final norm lets through, enlarged
// Where H' / H and D' / D are powers of 4 all scales are powers of 2: the logits are the small
// model's to the rounding of sums. Elsewhere scaled weights are rounded to their type.
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

// Llama-3.2-1B and 3B.
InflatedShape Llama1B();
InflatedShape Llama3B();

// INVALID_ARGUMENT: the shape does not hold the model, and where.
absl::Status CheckInflation(const ModelDescription& config, const InflatedShape& shape);
// All scales are powers of 2.
bool IsExact(const ModelDescription& config, const InflatedShape& shape);

// Writes the inflated model of `from`, weights of BF16 or F32, to the new folder `to`, with the same
// tokenizer but for entries that no text leads to. `on_progress` is told the bytes that are written
// and all of them. Errors name file and field.
absl::Status InflateModel(const std::filesystem::path& from, const std::filesystem::path& to,
                          const InflatedShape& shape,
                          const std::function<void(uint64_t done, uint64_t all)>& on_progress);

}  // namespace tandem

#endif  // TANDEM_BENCH_INFLATE_INFLATED_MODEL_H_
