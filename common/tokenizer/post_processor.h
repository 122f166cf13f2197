// Tokens put around a text: "post_processor" of tokenizer.json.
#ifndef TANDEM_COMMON_TOKENIZER_POST_PROCESSOR_H_
#define TANDEM_COMMON_TOKENIZER_POST_PROCESSOR_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/text/json_field.h"

namespace tandem {

// Adds the tokens of add_special_tokens. Supports TemplateProcessing of one text, ByteLevel (which
// only moves offsets), sequences of them, and null.
struct PostProcessor {
  std::vector<int32_t> before;
  std::vector<int32_t> after;

  // Ids from num_ids on do not exist.
  static absl::StatusOr<PostProcessor> FromJson(const JsonField& field, size_t num_ids);
};

}  // namespace tandem

#endif  // TANDEM_COMMON_TOKENIZER_POST_PROCESSOR_H_
