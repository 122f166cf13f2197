#include "common/tokenizer/bpe_tokenizer.h"

#include <openssl/evp.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "common/status.h"
#include "common/tokenizer/text/json_field.h"
#include "common/tokenizer/text/unicode.h"
#include "common/tokenizer/tokenizer_file.h"

namespace tandem {
namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 30;  // positions are 32 bits

struct DigestDeleter {
  void operator()(EVP_MD_CTX* digest) const { EVP_MD_CTX_free(digest); }
};

void UpdateWithNumber(EVP_MD_CTX* digest, uint32_t number) {
  const std::array<uint8_t, 4> bytes = {
      static_cast<uint8_t>(number), static_cast<uint8_t>(number >> 8),
      static_cast<uint8_t>(number >> 16), static_cast<uint8_t>(number >> 24)};
  EVP_DigestUpdate(digest, bytes.data(), bytes.size());
}

}  // namespace

BpeTokenizer::BpeTokenizer(AddedTokens added, Normalizer normalizer, PreTokenizer pre_tokenizer,
                           BpeModel model, PostProcessor post_processor, TextDecoder decoder)
    : added_(std::move(added)),
      normalizer_(std::move(normalizer)),
      pre_tokenizer_(std::move(pre_tokenizer)),
      model_(std::move(model)),
      post_processor_(std::move(post_processor)),
      decoder_(std::move(decoder)),
      num_entries_(std::max(added_.num_ids(), model_.vocabulary().num_ids())) {}

absl::StatusOr<std::unique_ptr<BpeTokenizer>> BpeTokenizer::Load(
    const std::filesystem::path& file) {
  TANDEM_ASSIGN_OR_RETURN(TokenizerFile contents, TokenizerFile::Read(file));
  const JsonField root(contents.tree, file.string());
  TANDEM_RETURN_IF_ERROR(root.CheckObject());
  TANDEM_ASSIGN_OR_RETURN(
      BpeModel model,
      BpeModel::FromJson(root.Member("model"), std::move(contents.vocabulary), contents.merges));
  TANDEM_ASSIGN_OR_RETURN(Normalizer normalizer, Normalizer::FromJson(root.Member("normalizer")));
  TANDEM_ASSIGN_OR_RETURN(AddedTokens added, AddedTokens::FromJson(root.Member("added_tokens"),
                                                                   model.vocabulary(), normalizer));
  TANDEM_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer,
                          PreTokenizer::FromJson(root.Member("pre_tokenizer")));
  TANDEM_ASSIGN_OR_RETURN(
      PostProcessor post_processor,
      PostProcessor::FromJson(root.Member("post_processor"),
                              std::max(added.num_ids(), model.vocabulary().num_ids())));
  TANDEM_ASSIGN_OR_RETURN(TextDecoder decoder, TextDecoder::FromJson(root.Member("decoder")));
  return std::unique_ptr<BpeTokenizer>(
      new BpeTokenizer(std::move(added), std::move(normalizer), std::move(pre_tokenizer),
                       std::move(model), std::move(post_processor), std::move(decoder)));
}

absl::StatusOr<std::vector<int32_t>> BpeTokenizer::Encode(std::string_view text,
                                                          bool add_special_tokens) const {
  if (text.size() > kMaxTextBytes) {
    return InvalidArgument("text: " + std::to_string(text.size()) + " bytes (want at most " +
                           std::to_string(kMaxTextBytes) + ")");
  }
  if (const std::optional<size_t> invalid = FindInvalidUtf8(text)) {
    return InvalidArgument("text: not UTF-8 at byte " + std::to_string(*invalid));
  }
  std::vector<int32_t> token_ids;
  if (add_special_tokens) token_ids = post_processor_.before;
  TANDEM_RETURN_IF_ERROR(added_.Split(
      text, /*normalized=*/false, [&](const AddedToken* token, size_t start, size_t end) {
        if (token == nullptr) {
          return EncodeStretch(text.substr(start, end - start), start == 0, token_ids);
        }
        token_ids.push_back(token->id);
        return absl::OkStatus();
      }));
  if (add_special_tokens) {
    token_ids.insert(token_ids.end(), post_processor_.after.begin(), post_processor_.after.end());
  }
  return token_ids;
}

absl::Status BpeTokenizer::EncodeStretch(std::string_view text, bool at_origin,
                                         std::vector<int32_t>& token_ids) const {
  TextPiece piece{std::string(text), at_origin};
  TANDEM_RETURN_IF_ERROR(normalizer_.Apply(piece));
  const std::string_view normalized = piece.text;
  return added_.Split(normalized, /*normalized=*/true,
                      [&](const AddedToken* token, size_t start, size_t end) -> absl::Status {
                        if (token != nullptr) {
                          token_ids.push_back(token->id);
                          return absl::OkStatus();
                        }
                        return pre_tokenizer_.Split(
                            {normalized.substr(start, end - start), piece.at_origin && start == 0},
                            [&](TextView word) { return model_.Encode(word.text, token_ids); });
                      });
}

std::string BpeTokenizer::Decode(std::span<const int32_t> token_ids,
                                 bool skip_special_tokens) const {
  DecodeState state;
  std::string text;
  for (const int32_t id : token_ids) text += DecodeNext(id, skip_special_tokens, state);
  return text + DecodeEnd(state);
}

std::string BpeTokenizer::DecodeNext(int32_t token_id, bool skip_special_tokens,
                                     DecodeState& state) const {
  if (!Exists(token_id) || (skip_special_tokens && IsSpecial(token_id))) return {};
  return decoder_.Next(NormalEntry(token_id), state);
}

std::string BpeTokenizer::DecodeEnd(DecodeState& state) const { return decoder_.End(state); }

std::string_view BpeTokenizer::Entry(int32_t token_id) const {
  const AddedToken* added = added_.Find(token_id);
  return added != nullptr ? std::string_view(added->content) : model_.vocabulary().Text(token_id);
}

std::string_view BpeTokenizer::NormalEntry(int32_t token_id) const {
  const AddedToken* added = added_.Find(token_id);
  return added != nullptr ? std::string_view(added->normal_content)
                          : model_.vocabulary().Text(token_id);
}

bool BpeTokenizer::Exists(int32_t token_id) const {
  return added_.Find(token_id) != nullptr || model_.vocabulary().Has(token_id);
}

bool BpeTokenizer::IsSpecial(int32_t token_id) const {
  const AddedToken* added = added_.Find(token_id);
  return added != nullptr && added->special;
}

std::array<uint8_t, 32> BpeTokenizer::Fingerprint() const {
  const std::unique_ptr<EVP_MD_CTX, DigestDeleter> digest(EVP_MD_CTX_new());
  EVP_DigestInit_ex(digest.get(), EVP_sha256(), nullptr);
  for (size_t i = 0; i < num_entries_; ++i) {
    const auto id = static_cast<int32_t>(i);
    if (!Exists(id)) continue;
    const std::string_view entry = Entry(id);
    UpdateWithNumber(digest.get(), static_cast<uint32_t>(id));
    UpdateWithNumber(digest.get(), static_cast<uint32_t>(entry.size()));
    EVP_DigestUpdate(digest.get(), entry.data(), entry.size());
  }
  std::array<uint8_t, 32> hash;
  EVP_DigestFinal_ex(digest.get(), hash.data(), nullptr);
  return hash;
}

std::string BpeTokenizer::TokenBytes(int32_t token_id) const {
  return Exists(token_id) ? decoder_.TokenBytes(NormalEntry(token_id)) : std::string();
}

}  // namespace tandem
