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

// The way of a text: added tokens that are looked for in the raw text; each stretch between them is
// normalized; added tokens that are looked for in the normalized text; each stretch between is
// split in words; each word is merged; the post-processor's tokens around it all. "truncation" and
// "padding" of the file are not applied: they are the caller's business, as in Hugging Face's
// transformers. Ids and texts are those of Hugging Face's tokenizers 0.23, but for one thing:
// Decode leaves a special token out when it is told to even if the normalizer changes the token's
// text.
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
  // What the decoder gets: an added token that is looked for in normalized text comes back
  // normalized.
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
