// Makes heads for an inflated model (inflated_model.h) from heads of the small model. They guess
// what the heads of the small model guess, at the cost of the large shape.
#ifndef TANDEM_BENCH_INFLATE_INFLATED_HEADS_H_
#define TANDEM_BENCH_INFLATE_INFLATED_HEADS_H_

#include <filesystem>

#include "absl/status/status.h"
#include "bench/inflate/inflated_model.h"

namespace tandem {

// Writes the inflated heads of `from`, which are heads of the model `target`, to the new folder
// `to`. What is added contributes nothing:
//   Medusa, blockwise  added dimensions have weights of 0; heads know the same tokens as before
//   EAGLE-1, EAGLE-2   the layer is inflated as those of the model are. Its guesses have 2^-10 in
//                      the dimension that pushes the logits of added tokens down (kMark)
//   EAGLE-3            the same, but guesses have the target's kMark there. The layer reads the
//                      states that it read before. Added layers of the target come last, so these
//                      states enter the same layers, and config.json names them. The output product
//                      of a draft vocabulary knows the same tokens as before
//   layer skip         of the added layers, every third one is left out
//   PaSS               embeddings get zeros, and kMark
// INVALID_ARGUMENT: EAGLE-1 or EAGLE-2 has an embedding or an output product of its own, weights
// are F16, or the shape is too small for the model. Other errors name the file and the field.
absl::Status InflateHeads(const std::filesystem::path& from, const std::filesystem::path& to,
                          const std::filesystem::path& target, const InflatedShape& shape);

}  // namespace tandem

#endif  // TANDEM_BENCH_INFLATE_INFLATED_HEADS_H_
