#include "common/tokenizer/added_tokens.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "common/status.h"
#include "common/tokenizer/text/unicode.h"

namespace tandem {
namespace {

constexpr size_t kMaxContentBytes = 4096;
constexpr size_t kMaxTotalBytes = 1 << 20;

absl::StatusOr<AddedToken> TokenFromJson(const JsonField& field) {
  TANDEM_RETURN_IF_ERROR(field.CheckObject());
  AddedToken token;
  TANDEM_ASSIGN_OR_RETURN(token.content, field.Member("content").String());
  if (token.content.empty()) return field.Member("content").Error("empty");
  if (token.content.size() > kMaxContentBytes) {
    return field.Member("content").Error(std::to_string(token.content.size()) +
                                         " bytes (want at most " +
                                         std::to_string(kMaxContentBytes) + ")");
  }
  TANDEM_ASSIGN_OR_RETURN(const int64_t id, field.Member("id").Integer());
  if (id < 0 || id >= kMaxVocabularySize) {
    return field.Member("id").Error(std::to_string(id) + " is out of range (want 0 to " +
                                    std::to_string(kMaxVocabularySize - 1) + ")");
  }
  token.id = static_cast<int32_t>(id);
  TANDEM_ASSIGN_OR_RETURN(token.single_word, field.Member("single_word").Bool(false));
  TANDEM_ASSIGN_OR_RETURN(token.lstrip, field.Member("lstrip").Bool(false));
  TANDEM_ASSIGN_OR_RETURN(token.rstrip, field.Member("rstrip").Bool(false));
  TANDEM_ASSIGN_OR_RETURN(token.special, field.Member("special").Bool(false));
  TANDEM_ASSIGN_OR_RETURN(token.normalized, field.Member("normalized").Bool(!token.special));
  return token;
}

bool IsWithinWord(std::string_view text, size_t start, size_t end) {
  return (start > 0 && IsWordCharacter(PreviousCharacter(text, start))) ||
         (end < text.size() && IsWordCharacter(NextCharacter(text, end)));
}

}  // namespace

void TextTrie::Add(std::string_view text, size_t value) {
  starts_[static_cast<unsigned char>(text[0])] = true;
  uint64_t node = 0;
  for (const char c : text) {
    const auto [child, is_new] = children_.try_emplace(node << 8 | static_cast<unsigned char>(c),
                                                       static_cast<uint32_t>(values_.size()));
    if (is_new) values_.push_back(kNone);
    node = child->second;
  }
  if (values_[node] == kNone) values_[node] = value;
}

std::optional<TextTrie::Match> TextTrie::Find(std::string_view text, size_t start) const {
  for (; start < text.size(); ++start) {
    if (!starts_[static_cast<unsigned char>(text[start])]) continue;
    std::optional<Match> longest;
    uint64_t node = 0;
    for (size_t i = start; i < text.size(); ++i) {
      const auto child = children_.find(node << 8 | static_cast<unsigned char>(text[i]));
      if (child == children_.end()) break;
      node = child->second;
      if (values_[node] != kNone) longest = Match{start, i + 1, values_[node]};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

absl::StatusOr<AddedTokens> AddedTokens::FromJson(const JsonField& field,
                                                  const Vocabulary& vocabulary,
                                                  const Normalizer& normalizer) {
  AddedTokens added;
  if (!field.present()) return added;
  TANDEM_RETURN_IF_ERROR(field.CheckArray());
  size_t total_bytes = 0;
  absl::flat_hash_set<std::string> contents;
  for (size_t i = 0; i < field.size(); ++i) {
    const JsonField element = field.Element(i);
    TANDEM_ASSIGN_OR_RETURN(AddedToken token, TokenFromJson(element));
    total_bytes += token.content.size();
    if (total_bytes > kMaxTotalBytes) {
      return field.Error("more than " + std::to_string(kMaxTotalBytes) + " bytes of content");
    }
    const std::optional<int32_t> in_vocabulary = vocabulary.Find(token.content);
    if (in_vocabulary ? *in_vocabulary != token.id : vocabulary.Has(token.id)) {
      return element.Member("id").Error(
          std::to_string(token.id) + " for " + Quoted(token.content) + ", but model.vocab has " +
          (in_vocabulary ? std::to_string(*in_vocabulary) + " for it"
                         : Quoted(vocabulary.Text(token.id)) + " there"));
    }
    if (!added.index_of_id_.try_emplace(token.id, added.tokens_.size()).second) {
      return element.Member("id").Error(std::to_string(token.id) + " is given to two tokens");
    }
    if (!contents.insert(token.content).second) {
      return element.Error("the content " + Quoted(token.content) + " is given twice");
    }
    added.num_ids_ = std::max(added.num_ids_, static_cast<size_t>(token.id) + 1);
    added.tokens_.push_back(std::move(token));
  }
  // If two texts are equal, the special token wins.
  std::vector<size_t> order;
  for (const bool special : {true, false}) {
    for (size_t i = 0; i < added.tokens_.size(); ++i) {
      if (added.tokens_[i].special == special) order.push_back(i);
    }
  }
  for (const size_t i : order) {
    AddedToken& token = added.tokens_[i];
    TextPiece piece{token.content, false};
    if (token.normalized) TANDEM_RETURN_IF_ERROR(normalizer.Apply(piece));
    if (piece.text.empty()) return field.Element(i).Error("the normalizer removes all of it");
    token.normal_content = std::move(piece.text);
    (token.normalized ? added.normalized_ : added.raw_).Add(token.normal_content, i);
  }
  return added;
}

absl::Status AddedTokens::Split(std::string_view text, bool normalized, Sink sink) const {
  const TextTrie& trie = normalized ? normalized_ : raw_;
  size_t done = 0;
  size_t search_from = 0;
  while (const std::optional<TextTrie::Match> match = trie.Find(text, search_from)) {
    search_from = match->end;
    const AddedToken& token = tokens_[match->value];
    size_t start = match->start;
    size_t end = match->end;
    if (token.single_word && IsWithinWord(text, start, end)) continue;
    // The token before may already include the white space.
    if (token.lstrip) start = std::max(done, start - TrailingWhiteSpace(text.substr(0, start)));
    if (token.rstrip) end += LeadingWhiteSpace(text.substr(end));
    if (done < start) TANDEM_RETURN_IF_ERROR(sink(nullptr, done, start));
    TANDEM_RETURN_IF_ERROR(sink(&token, start, end));
    done = end;
  }
  return done < text.size() ? sink(nullptr, done, text.size()) : absl::OkStatus();
}

const AddedToken* AddedTokens::Find(int32_t id) const {
  const auto found = index_of_id_.find(id);
  return found == index_of_id_.end() ? nullptr : &tokens_[found->second];
}

}  // namespace tandem
