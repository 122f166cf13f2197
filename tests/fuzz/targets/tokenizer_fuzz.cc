// Reads tokenizer.json, encodes a text, and decodes ids.
//
// The input is tokenizer.json up to the first zero byte, and then a text. If there is no zero byte,
// the text is the end of the file.
#include <vector>

#include "common/tokenizer/text/unicode.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/input_folder.h"

namespace tandem::fuzz {
namespace {

void CheckDecoding(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  for (const bool skip_special_tokens : {false, true}) {
    const std::string text = tokenizer.Decode(ids, skip_special_tokens);
    Check(!FindInvalidUtf8(text).has_value(), "a decoded text is UTF-8");
    StreamingDetokenizer stream(&tokenizer, skip_special_tokens);
    std::string pieces;
    for (const int32_t id : ids) pieces += stream.Push(id);
    pieces += stream.Finish();
    Check(pieces == text, "texts of the stream concatenate to the decoded text");
  }
}

}  // namespace
}  // namespace tandem::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  constexpr size_t kMaxTextBytes = 256;
  static const fuzz::InputFolder folder;
  const std::string_view bytes = fuzz::FuzzInput(data, size).Rest();
  const size_t json_bytes = std::min(bytes.find('\0'), bytes.size());
  folder.Write("tokenizer.json", bytes.substr(0, json_bytes));
  const auto tokenizer = Tokenizer::Load(folder.path());
  if (!tokenizer.ok()) return 0;

  std::string_view text = bytes.substr(std::min(json_bytes + 1, bytes.size()));
  if (text.empty()) text = bytes.substr(bytes.size() - std::min(bytes.size(), kMaxTextBytes));
  const auto ids = (*tokenizer)->Encode(text, true);
  if (ids.ok()) {
    for (const int32_t id : *ids) {
      fuzz::Check(id >= 0 && static_cast<size_t>(id) < (*tokenizer)->num_entries(),
                  "ids are of the vocabulary");
    }
    fuzz::CheckDecoding(**tokenizer, *ids);
  }
  // These ids did not come from the encoder, and some of them do not exist.
  std::vector<int32_t> others;
  for (const char c : text.substr(0, kMaxTextBytes)) {
    const auto byte = static_cast<uint8_t>(c);
    others.push_back(byte < 250 ? byte : (byte - 252) * 1'000'000);
  }
  fuzz::CheckDecoding(**tokenizer, others);
  (*tokenizer)->Fingerprint();
  return 0;
}
