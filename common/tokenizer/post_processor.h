// Tokens put around a text: "post_processor" of tokenizer.json.
#ifndef TANDEM_COMMON_TOKENIZER_POST_PROCESSOR_H_
#define TANDEM_COMMON_TOKENIZER_POST_PROCESSOR_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/json_field.h"

namespace tandem {

// What add_special_tokens adds. TemplateProcessing of one text, ByteLevel (which only moves
// offsets), sequences, null.
struct PostProcessor {
  std::vector<int32_t> before;
  std::vector<int32_t> after;

  // num_ids: ids from there on do not exist.
  static absl::StatusOr<PostProcessor> FromJson(const JsonField& field, size_t num_ids);
};

}  // namespace tandem

#endif  // TANDEM_COMMON_TOKENIZER_POST_PROCESSOR_H_
