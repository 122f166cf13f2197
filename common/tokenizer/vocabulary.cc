#include "common/tokenizer/vocabulary.h"

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"
#include "common/status.h"

namespace tandem {

absl::Status Vocabulary::Add(std::string_view text, int64_t id) {
  if (id < 0 || id >= kMaxVocabularySize) {
    return InvalidArgument("id " + std::to_string(id) + " is out of range (want 0 to " +
                           std::to_string(kMaxVocabularySize - 1) + ")");
  }
  if (Has(static_cast<int32_t>(id))) {
    return InvalidArgument("id " + std::to_string(id) + " is given to two entries");
  }
  if ((size_ + 1) * 2 > table_.size()) Grow();
  const size_t place = Place(text);
  if (table_[place] != kFree) return InvalidArgument("the entry is given twice");
  if (spans_.size() <= static_cast<size_t>(id)) spans_.resize(static_cast<size_t>(id) + 1);
  spans_[static_cast<size_t>(id)] = {static_cast<uint32_t>(texts_.size()),
                                     static_cast<uint32_t>(text.size())};
  texts_ += text;
  table_[place] = static_cast<int32_t>(id);
  ++size_;
  return absl::OkStatus();
}

std::optional<int32_t> Vocabulary::Find(std::string_view text) const {
  if (table_.empty()) return std::nullopt;
  const int32_t id = table_[Place(text)];
  if (id == kFree) return std::nullopt;
  return id;
}

bool Vocabulary::Has(int32_t id) const {
  return id >= 0 && static_cast<size_t>(id) < spans_.size() &&
         spans_[static_cast<size_t>(id)].length != kAbsent;
}

std::string_view Vocabulary::Text(int32_t id) const {
  if (!Has(id)) return {};
  const Span span = spans_[static_cast<size_t>(id)];
  return std::string_view(texts_).substr(span.offset, span.length);
}

size_t Vocabulary::Place(std::string_view text) const {
  const size_t mask = table_.size() - 1;
  size_t place =
      absl::Hash<absl::string_view>()(absl::string_view(text.data(), text.size())) & mask;
  while (table_[place] != kFree && Text(table_[place]) != text) place = (place + 1) & mask;
  return place;
}

void Vocabulary::Grow() {
  table_.assign(table_.empty() ? 1024 : table_.size() * 2, kFree);
  for (size_t id = 0; id < spans_.size(); ++id) {
    if (spans_[id].length == kAbsent) continue;
    table_[Place(Text(static_cast<int32_t>(id)))] = static_cast<int32_t>(id);
  }
}

}  // namespace tandem
