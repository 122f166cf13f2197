// The tokenizer that tokenizer.json describes, put together from its parts.
#ifndef TANDEM_COMMON_TOKENIZER_BPE_TOKENIZER_H_
#define TANDEM_COMMON_TOKENIZER_BPE_TOKENIZER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/added_tokens.h"
#include "common/tokenizer/bpe_model.h"
#include "common/tokenizer/normalizer.h"
#include "common/tokenizer/post_processor.h"
#include "common/tokenizer/pre_tokenizer.h"
#include "common/tokenizer/text_decoder.h"
#include "common/tokenizer/tokenizer.h"

namespace tandem {

// Encoding a text has these steps. Added tokens are searched for in the raw text. The text between
// them is normalized. Other added tokens are searched for in the normalized text. The text between
// them is split into words, and each word is merged. The post-processor puts its tokens around the
// result. "truncation" and "padding" of the file are not applied: they are left to the caller, as
// in Hugging Face's transformers. Ids and texts are equal to those of Hugging Face's tokenizers
// 0.23, with one exception: Decode leaves a special token out on request even if the normalizer
// changes the token's text.
class BpeTokenizer : public Tokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<BpeTokenizer>> Load(const std::filesystem::path& file);

  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              bool add_special_tokens) const override;
  std::string Decode(std::span<const int32_t> token_ids, bool skip_special_tokens) const override;
  std::string DecodeNext(int32_t token_id, bool skip_special_tokens,
                         DecodeState& state) const override;
  std::string DecodeEnd(DecodeState& state) const override;
  size_t num_entries() const override { return num_entries_; }
  std::string_view Entry(int32_t token_id) const override;
  bool IsSpecial(int32_t token_id) const override;
  std::array<uint8_t, 32> Fingerprint() const override;
  std::string TokenBytes(int32_t token_id) const override;
  bool StripsLeadingSpace() const override { return decoder_.StripsLeadingSpace(); }

 private:
  BpeTokenizer(AddedTokens added, Normalizer normalizer, PreTokenizer pre_tokenizer, BpeModel model,
               PostProcessor post_processor, TextDecoder decoder);

  bool Exists(int32_t token_id) const;
  // Returns the entry for the decoder. An added token that is searched for in normalized text is
  // given in its normalized form.
  std::string_view NormalEntry(int32_t token_id) const;
  absl::Status EncodeStretch(std::string_view text, bool at_origin,
                             std::vector<int32_t>& token_ids) const;

  AddedTokens added_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  BpeModel model_;
  PostProcessor post_processor_;
  TextDecoder decoder_;
  size_t num_entries_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_TOKENIZER_BPE_TOKENIZER_H_
