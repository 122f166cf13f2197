// A tokenizer with entries that a test makes up.
#ifndef TANDEM_TESTS_ROUTER_TOY_TOKENIZER_H_
#define TANDEM_TESTS_ROUTER_TOY_TOKENIZER_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"

namespace tandem::testing {

// Entry i is the byte string at i. Encode gives one entry for each byte that has an entry of its
// own. The last entry is special. It comes before every text if `begin` is true.
class ToyTokenizer final : public Tokenizer {
 public:
  explicit ToyTokenizer(std::vector<std::string> entries, bool begin = false)
      : entries_(std::move(entries)), begin_(begin) {}

  // Makes the entries "a" … "z", space, and then made-up words up to `size` entries. The last entry
  // is "</s>".
  static ToyTokenizer OfSize(size_t size) {
    std::vector<std::string> entries;
    for (char c = 'a'; c <= 'z'; ++c) entries.emplace_back(1, c);
    entries.emplace_back(" ");
    while (entries.size() + 1 < size) {
      // The code avoids `"<" + …`, because g++ 12 falsely reports an overlap (-Wrestrict).
      std::string word = "<";
      word += std::to_string(entries.size());
      entries.push_back(word += ">");
    }
    entries.emplace_back("</s>");
    return ToyTokenizer(std::move(entries));
  }

  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              bool add_special_tokens) const override {
    std::vector<int32_t> ids;
    if (begin_ && add_special_tokens) ids.push_back(static_cast<int32_t>(num_entries()) - 1);
    for (char c : text) {
      const auto found = std::find(entries_.begin(), entries_.end(), std::string(1, c));
      if (found != entries_.end()) ids.push_back(static_cast<int32_t>(found - entries_.begin()));
    }
    return ids;
  }
  std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens) const override {
    StreamingDetokenizer detokenizer(this, skip_special_tokens);
    std::string text;
    for (int32_t id : ids) text += detokenizer.Push(id);
    return text + detokenizer.Finish();
  }
  size_t num_entries() const override { return entries_.size(); }
  std::string_view Entry(int32_t id) const override { return entries_[id]; }
  bool IsSpecial(int32_t id) const override {
    return id + 1 == static_cast<int32_t>(num_entries());
  }
  std::array<uint8_t, 32> Fingerprint() const override {
    std::array<uint8_t, 32> fingerprint{};
    size_t i = 0;
    for (const std::string& entry : entries_) {
      for (char c : entry) {
        fingerprint[i % 32] ^= static_cast<uint8_t>(static_cast<size_t>(c) + i / 32);
        ++i;
      }
    }
    return fingerprint;
  }
  std::string TokenBytes(int32_t id) const override { return entries_[id]; }
  bool StripsLeadingSpace() const override { return false; }

  const std::vector<std::string>& entries() const { return entries_; }
  std::string FingerprintBytes() const {
    const auto fingerprint = Fingerprint();
    return std::string(fingerprint.begin(), fingerprint.end());
  }

 private:
  std::vector<std::string> entries_;
  bool begin_;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_ROUTER_TOY_TOKENIZER_H_
