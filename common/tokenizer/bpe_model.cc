#include "common/tokenizer/bpe_model.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <queue>
#include <utility>

#include "common/status.h"
#include "common/tokenizer/text/unicode.h"

namespace tandem {
namespace {

constexpr int32_t kNoId = -1;

uint64_t PairKey(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

std::string ByteEntry(unsigned char byte) {
  std::array<char, 8> text;
  std::snprintf(text.data(), text.size(), "<0x%02X>", byte);
  return text.data();
}

// Refuses settings that change ids and that no Llama-like tokenizer uses.
absl::Status RefuseAffix(const JsonField& field) {
  if (!field.present()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const std::string affix, field.String());
  if (affix.empty()) return absl::OkStatus();
  return field.Error(Quoted(affix) + " is not supported (want null or empty)");
}

}  // namespace

absl::StatusOr<BpeModel> BpeModel::FromJson(const JsonField& field, Vocabulary vocabulary,
                                            const std::optional<MergeList>& merges) {
  TANDEM_RETURN_IF_ERROR(field.CheckObject());
  const JsonField type_field = field.Member("type");
  if (type_field.present()) {
    TANDEM_ASSIGN_OR_RETURN(const std::string type, type_field.String());
    if (type != "BPE") return type_field.Error(Quoted(type) + " is not supported (want BPE)");
  } else if (!merges) {
    // GPT-2's own file has no type. The merges show that it is BPE.
    return type_field.Error("missing (want BPE)");
  }
  const JsonField dropout = field.Member("dropout");
  if (dropout.present()) return dropout.Error("is not supported (want null)");
  TANDEM_RETURN_IF_ERROR(RefuseAffix(field.Member("continuing_subword_prefix")));
  TANDEM_RETURN_IF_ERROR(RefuseAffix(field.Member("end_of_word_suffix")));
  if (vocabulary.size() == 0) return field.Member("vocab").Error("missing or empty");
  // A list of merges would not be in the tree.
  if (!merges) return field.Member("merges").CheckArray();

  BpeModel model;
  TANDEM_ASSIGN_OR_RETURN(model.ignore_merges_, field.Member("ignore_merges").Bool(false));
  TANDEM_ASSIGN_OR_RETURN(model.fuse_unknown_, field.Member("fuse_unk").Bool(false));
  TANDEM_ASSIGN_OR_RETURN(const bool byte_fallback, field.Member("byte_fallback").Bool(false));
  const JsonField unknown = field.Member("unk_token");
  if (unknown.present()) {
    TANDEM_ASSIGN_OR_RETURN(model.unknown_token_, unknown.String());
  }
  model.vocabulary_ = std::move(vocabulary);
  if (byte_fallback) {
    for (size_t byte = 0; byte < model.byte_tokens_.size(); ++byte) {
      model.byte_tokens_[byte] =
          model.vocabulary_.Find(ByteEntry(static_cast<unsigned char>(byte)));
    }
  }

  model.merges_.reserve(merges->size());
  for (size_t rank = 0; rank < merges->size(); ++rank) {
    const auto [left, right] = (*merges)[rank];
    const auto find = [&](std::string_view text) -> absl::StatusOr<int32_t> {
      const std::optional<int32_t> id = model.vocabulary_.Find(text);
      if (id) return *id;
      return InvalidArgument(field.name() + ".merges[" + std::to_string(rank) +
                             "]: " + Quoted(text) + " is not in model.vocab");
    };
    TANDEM_ASSIGN_OR_RETURN(const int32_t left_id, find(left));
    TANDEM_ASSIGN_OR_RETURN(const int32_t right_id, find(right));
    TANDEM_ASSIGN_OR_RETURN(const int32_t id, find(std::string(left) + std::string(right)));
    // If a pair is given twice, the last one wins.
    model.merges_[PairKey(left_id, right_id)] = {static_cast<uint32_t>(rank), id};
  }
  return model;
}

absl::Status BpeModel::Encode(std::string_view word, std::vector<int32_t>& token_ids) const {
  if (ignore_merges_) {
    if (const std::optional<int32_t> id = vocabulary_.Find(word)) {
      token_ids.push_back(*id);
      return absl::OkStatus();
    }
  }
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  TANDEM_RETURN_IF_ERROR(AppendSymbols(word, symbols));
  for (size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].previous = static_cast<int32_t>(i) - 1;
    symbols[i].next = i + 1 < symbols.size() ? static_cast<int32_t>(i) + 1 : kNoSymbol;
  }
  MergeAll(symbols);
  for (const Symbol& symbol : symbols) {
    if (symbol.id != kMergedAway) token_ids.push_back(symbol.id);
  }
  return absl::OkStatus();
}

absl::Status BpeModel::AppendSymbols(std::string_view word, std::vector<Symbol>& symbols) const {
  const auto append = [&](int32_t id) { symbols.push_back({id, kNoSymbol, kNoSymbol}); };
  // An unknown character waits here, because the next ones may be fused with it.
  int32_t waiting = kNoId;
  for (size_t i = 0; i < word.size();) {
    const size_t begin = i;
    NextCharacter(word, i);
    const std::string_view character = word.substr(begin, i - begin);
    if (const std::optional<int32_t> id = vocabulary_.Find(character)) {
      if (waiting != kNoId) append(waiting);
      waiting = kNoId;
      append(*id);
      continue;
    }
    if (AppendBytes(character, symbols)) continue;
    if (!unknown_token_) continue;  // Hugging Face drops it, too
    const std::optional<int32_t> unknown = vocabulary_.Find(*unknown_token_);
    if (!unknown) {
      return InvalidArgument("text: the tokenizer has no entry for " + Quoted(character) +
                             " and none for its unknown token");
    }
    if (waiting != kNoId && !fuse_unknown_) append(waiting);
    waiting = *unknown;
  }
  if (waiting != kNoId) append(waiting);
  return absl::OkStatus();
}

bool BpeModel::AppendBytes(std::string_view character, std::vector<Symbol>& symbols) const {
  const auto token_of = [&](char byte) { return byte_tokens_[static_cast<unsigned char>(byte)]; };
  const bool all = std::all_of(character.begin(), character.end(),
                               [&](char byte) { return token_of(byte).has_value(); });
  if (!all) return false;
  for (const char byte : character) symbols.push_back({*token_of(byte), kNoSymbol, kNoSymbol});
  return true;
}

const BpeModel::Merge* BpeModel::FindMerge(int32_t left, int32_t right) const {
  const auto found = merges_.find(PairKey(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BpeModel::MergeAll(std::vector<Symbol>& symbols) const {
  struct Candidate {
    uint64_t order;  // rank, then position of the left symbol
    int32_t id;
    bool operator>(const Candidate& other) const { return order > other.order; }
  };
  std::vector<Candidate> storage;
  storage.reserve(symbols.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(std::greater<>(),
                                                                               std::move(storage));
  const auto consider = [&](int32_t left) {
    if (left == kNoSymbol || symbols[left].next == kNoSymbol) return;
    const Merge* merge = FindMerge(symbols[left].id, symbols[symbols[left].next].id);
    if (merge == nullptr) return;
    queue.push({uint64_t{merge->rank} << 32 | static_cast<uint32_t>(left), merge->id});
  };
  for (size_t i = 0; i < symbols.size(); ++i) consider(static_cast<int32_t>(i));

  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    const auto position = static_cast<int32_t>(static_cast<uint32_t>(top.order));
    Symbol& left = symbols[position];
    if (left.id == kMergedAway || left.next == kNoSymbol) continue;
    Symbol& right = symbols[left.next];
    // The entry is stale if one of the two symbols has been merged since. Like Hugging Face, this
    // code compares only the result.
    const Merge* merge = FindMerge(left.id, right.id);
    if (merge == nullptr || merge->id != top.id) continue;
    left.id = top.id;
    left.next = right.next;
    right.id = kMergedAway;
    if (left.next != kNoSymbol) symbols[left.next].previous = position;
    consider(left.previous);
    consider(position);
  }
}

}  // namespace tandem
