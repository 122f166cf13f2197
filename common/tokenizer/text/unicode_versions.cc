#include "common/tokenizer/text/unicode_versions.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>

#include "common/tokenizer/text/unicode.h"

namespace tandem {
namespace {

// One character that both versions know, for each category and length in UTF-8.
constexpr char32_t kLu3 = 0x1E00;
constexpr char32_t kLl3 = 0x1E01;
constexpr char32_t kMn3 = 0x0900;
constexpr char32_t kMc3 = 0x0903;
constexpr char32_t kPo3 = 0x0964;
constexpr char32_t kSo3 = 0x2605;
constexpr char32_t kLo4 = 0x10000;
constexpr char32_t kHan4 = 0x20000;
constexpr char32_t kHiragana4 = 0x1B001;
constexpr char32_t kKatakana4 = 0x1B000;
constexpr char32_t kMn4 = 0x10A01;
constexpr char32_t kSo4 = 0x1F300;
constexpr char32_t kMc4 = 0x11000;
constexpr char32_t kNd4 = 0x104A0;
constexpr char32_t kPo4 = 0x10100;
constexpr char32_t kLm4 = 0x16F93;
constexpr char32_t kLu4 = 0x10400;
constexpr char32_t kLl4 = 0x10428;
constexpr char32_t kPd4 = 0x10EAD;
constexpr char32_t kSm4 = 0x1D6C1;
constexpr char32_t kCf4 = 0x1BCA0;
constexpr char32_t kNo4 = 0x10107;

struct Update {
  char32_t first;
  char32_t last;
  char32_t known;  // replaces these characters
};
// Printed by tests/golden/make_tokenizer_golden.py --unicode-updates.
constexpr std::array<Update, 127> kUpdates = {
    {{0x897, 0x897, kMn3},     {0xCF3, 0xCF3, kMc3},           {0xECE, 0xECE, kMn3},
     {0x1B4E, 0x1B4F, kPo3},   {0x1B7F, 0x1B7F, kPo3},         {0x1C89, 0x1C89, kLu3},
     {0x1C8A, 0x1C8A, kLl3},   {0x2427, 0x2429, kSo3},         {0x2FFC, 0x2FFF, kSo3},
     {0x31E4, 0x31E5, kSo3},   {0x31EF, 0x31EF, kSo3},         {0xA7CB, 0xA7CC, kLu3},
     {0xA7CD, 0xA7CD, kLl3},   {0xA7DA, 0xA7DA, kLu3},         {0xA7DB, 0xA7DB, kLl3},
     {0xA7DC, 0xA7DC, kLu3},   {0x105C0, 0x105F3, kLo4},       {0x10D40, 0x10D49, kNd4},
     {0x10D4A, 0x10D4D, kLo4}, {0x10D4E, 0x10D4E, kLm4},       {0x10D4F, 0x10D4F, kLo4},
     {0x10D50, 0x10D65, kLu4}, {0x10D69, 0x10D6D, kMn4},       {0x10D6E, 0x10D6E, kPd4},
     {0x10D6F, 0x10D6F, kLm4}, {0x10D70, 0x10D85, kLl4},       {0x10D8E, 0x10D8F, kSm4},
     {0x10EC2, 0x10EC4, kLo4}, {0x10EFC, 0x10EFF, kMn4},       {0x1123F, 0x11240, kLo4},
     {0x11241, 0x11241, kMn4}, {0x11380, 0x11389, kLo4},       {0x1138B, 0x1138B, kLo4},
     {0x1138E, 0x1138E, kLo4}, {0x11390, 0x113B5, kLo4},       {0x113B7, 0x113B7, kLo4},
     {0x113B8, 0x113BA, kMc4}, {0x113BB, 0x113C0, kMn4},       {0x113C2, 0x113C2, kMc4},
     {0x113C5, 0x113C5, kMc4}, {0x113C7, 0x113CA, kMc4},       {0x113CC, 0x113CD, kMc4},
     {0x113CE, 0x113CE, kMn4}, {0x113CF, 0x113CF, kMc4},       {0x113D0, 0x113D0, kMn4},
     {0x113D1, 0x113D1, kLo4}, {0x113D2, 0x113D2, kMn4},       {0x113D3, 0x113D3, kLo4},
     {0x113D4, 0x113D5, kPo4}, {0x113D7, 0x113D8, kPo4},       {0x113E1, 0x113E2, kMn4},
     {0x116D0, 0x116E3, kNd4}, {0x1171E, 0x1171E, kMc4},       {0x11B00, 0x11B09, kPo4},
     {0x11BC0, 0x11BE0, kLo4}, {0x11BE1, 0x11BE1, kPo4},       {0x11BF0, 0x11BF9, kNd4},
     {0x11F00, 0x11F01, kMn4}, {0x11F02, 0x11F02, kLo4},       {0x11F03, 0x11F03, kMc4},
     {0x11F04, 0x11F10, kLo4}, {0x11F12, 0x11F33, kLo4},       {0x11F34, 0x11F35, kMc4},
     {0x11F36, 0x11F3A, kMn4}, {0x11F3E, 0x11F3F, kMc4},       {0x11F40, 0x11F40, kMn4},
     {0x11F41, 0x11F41, kMc4}, {0x11F42, 0x11F42, kMn4},       {0x11F43, 0x11F4F, kPo4},
     {0x11F50, 0x11F59, kNd4}, {0x11F5A, 0x11F5A, kMn4},       {0x1342F, 0x1342F, kLo4},
     {0x13439, 0x1343F, kCf4}, {0x13440, 0x13440, kMn4},       {0x13441, 0x13446, kLo4},
     {0x13447, 0x13455, kMn4}, {0x13460, 0x143FA, kLo4},       {0x16100, 0x1611D, kLo4},
     {0x1611E, 0x16129, kMn4}, {0x1612A, 0x1612C, kMc4},       {0x1612D, 0x1612F, kMn4},
     {0x16130, 0x16139, kNd4}, {0x16D40, 0x16D42, kLm4},       {0x16D43, 0x16D6A, kLo4},
     {0x16D6B, 0x16D6C, kLm4}, {0x16D6D, 0x16D6F, kPo4},       {0x16D70, 0x16D79, kNd4},
     {0x18CFF, 0x18CFF, kLo4}, {0x1B132, 0x1B132, kHiragana4}, {0x1B155, 0x1B155, kKatakana4},
     {0x1CC00, 0x1CCEF, kSo4}, {0x1CCF0, 0x1CCF9, kNd4},       {0x1CD00, 0x1CEB3, kSo4},
     {0x1D2C0, 0x1D2D3, kNo4}, {0x1DF25, 0x1DF2A, kLl4},       {0x1E030, 0x1E06D, kLm4},
     {0x1E08F, 0x1E08F, kMn4}, {0x1E4D0, 0x1E4EA, kLo4},       {0x1E4EB, 0x1E4EB, kLm4},
     {0x1E4EC, 0x1E4EF, kMn4}, {0x1E4F0, 0x1E4F9, kNd4},       {0x1E5D0, 0x1E5ED, kLo4},
     {0x1E5EE, 0x1E5EF, kMn4}, {0x1E5F0, 0x1E5F0, kLo4},       {0x1E5F1, 0x1E5FA, kNd4},
     {0x1E5FF, 0x1E5FF, kPo4}, {0x1F6DC, 0x1F6DC, kSo4},       {0x1F774, 0x1F776, kSo4},
     {0x1F77B, 0x1F77F, kSo4}, {0x1F7D9, 0x1F7D9, kSo4},       {0x1F8B2, 0x1F8BB, kSo4},
     {0x1F8C0, 0x1F8C1, kSo4}, {0x1FA75, 0x1FA77, kSo4},       {0x1FA87, 0x1FA89, kSo4},
     {0x1FA8F, 0x1FA8F, kSo4}, {0x1FAAD, 0x1FAAF, kSo4},       {0x1FABB, 0x1FABF, kSo4},
     {0x1FAC6, 0x1FAC6, kSo4}, {0x1FACE, 0x1FACF, kSo4},       {0x1FADA, 0x1FADC, kSo4},
     {0x1FADF, 0x1FADF, kSo4}, {0x1FAE8, 0x1FAE9, kSo4},       {0x1FAF7, 0x1FAF8, kSo4},
     {0x1FBCB, 0x1FBEF, kSo4}, {0x2B739, 0x2B739, kHan4},      {0x2EBF0, 0x2EE5D, kHan4},
     {0x31350, 0x323AF, kHan4}}};

struct Range {
  char32_t first;
  char32_t last;
};
constexpr std::array<Range, 52> kUnknownToNormalization = {
    {{0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
     {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},
     {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},
     {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x105C9, 0x105E4}, {0x10781, 0x10785},
     {0x10787, 0x107B0}, {0x107B2, 0x107BA}, {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC},
     {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070},
     {0x1133B, 0x1133B}, {0x11380, 0x113E2}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
     {0x11930, 0x11930}, {0x11935, 0x11935}, {0x11938, 0x11938}, {0x1193D, 0x1193E},
     {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47},
     {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97},
     {0x11F41, 0x11F42}, {0x16100, 0x16139}, {0x16D40, 0x16D79}, {0x16FF0, 0x16FF1},
     {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE},
     {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}}};

constexpr std::array<Range, 39> kLaterPunctuation = {
    {{0x61D, 0x61D},     {0x9FD, 0x9FD},     {0xA76, 0xA76},     {0xC77, 0xC77},
     {0xC84, 0xC84},     {0x1B4E, 0x1B4F},   {0x1B7D, 0x1B7F},   {0x2E43, 0x2E4F},
     {0x2E52, 0x2E5D},   {0x10D6E, 0x10D6E}, {0x10EAD, 0x10EAD}, {0x10F55, 0x10F59},
     {0x10F86, 0x10F89}, {0x113D4, 0x113D5}, {0x113D7, 0x113D8}, {0x1144B, 0x1144F},
     {0x1145A, 0x1145B}, {0x1145D, 0x1145D}, {0x11660, 0x1166C}, {0x116B9, 0x116B9},
     {0x1183B, 0x1183B}, {0x11944, 0x11946}, {0x119E2, 0x119E2}, {0x11A3F, 0x11A46},
     {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2}, {0x11B00, 0x11B09}, {0x11BE1, 0x11BE1},
     {0x11C41, 0x11C45}, {0x11C70, 0x11C71}, {0x11EF7, 0x11EF8}, {0x11F43, 0x11F4F},
     {0x11FFF, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x16D6D, 0x16D6F}, {0x16E97, 0x16E9A},
     {0x16FE2, 0x16FE2}, {0x1E5FF, 0x1E5FF}, {0x1E95E, 0x1E95F}}};

// Lowercase letters that Rust (Unicode 17.0) knows and utf8proc 2.8 (Unicode 15.0) does not.
struct CaseRange {
  char32_t first;
  char32_t last;
  char32_t lowercase_of_first;
};
constexpr std::array<CaseRange, 10> kLaterCases = {{{0x1C89, 0x1C89, 0x1C8A},
                                                    {0xA7CB, 0xA7CB, 0x264},
                                                    {0xA7CC, 0xA7CC, 0xA7CD},
                                                    {0xA7CE, 0xA7CE, 0xA7CF},
                                                    {0xA7D2, 0xA7D2, 0xA7D3},
                                                    {0xA7D4, 0xA7D4, 0xA7D5},
                                                    {0xA7DA, 0xA7DA, 0xA7DB},
                                                    {0xA7DC, 0xA7DC, 0x19B},
                                                    {0x10D50, 0x10D65, 0x10D70},
                                                    {0x16EA0, 0x16EB8, 0x16EBB}}};

// Returns the range that has the character, or the end.
template <typename Ranges>
auto FindRange(const Ranges& ranges, char32_t character) {
  const auto range = std::lower_bound(
      ranges.begin(), ranges.end(), character,
      [](const auto& candidate, char32_t sought) { return candidate.last < sought; });
  return range != ranges.end() && range->first <= character ? range : ranges.end();
}

}  // namespace

char32_t AsKnownSinceUnicode14(char32_t character) {
  const auto update = FindRange(kUpdates, character);
  return update == kUpdates.end() ? character : update->known;
}

std::optional<std::string> AsKnownSinceUnicode14(std::string_view text) {
  std::optional<std::string> known;
  size_t copied = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const char32_t character = NextCharacter(text, i);
    if (character < kUpdates[0].first) continue;
    const char32_t replacement = AsKnownSinceUnicode14(character);
    if (replacement == character) continue;
    if (!known) known.emplace();
    *known += text.substr(copied, begin - copied);
    AppendCharacter(replacement, *known);
    copied = i;
  }
  if (known) *known += text.substr(copied);
  return known;
}

std::optional<char32_t> LaterLowercase(char32_t character) {
  const auto range = FindRange(kLaterCases, character);
  if (range == kLaterCases.end()) return std::nullopt;
  return range->lowercase_of_first + (character - range->first);
}

bool IsLaterPunctuation(char32_t character) {
  return FindRange(kLaterPunctuation, character) != kLaterPunctuation.end();
}

bool IsUnknownToNormalization(char32_t character) {
  return FindRange(kUnknownToNormalization, character) != kUnknownToNormalization.end();
}

}  // namespace tandem
