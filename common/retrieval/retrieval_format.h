// The file of a retrieval index. All numbers are little-endian.
//
//   RetrievalHeader                        64 bytes
//   tokens  [num_tokens]   int32           the documents; kDocumentEnd follows each of them
//   places  [num_places]   uint32          index of every token that is no kDocumentEnd
//
// Places are in the order of the texts that begin there: a suffix array (Manber and Myers 1993,
// "Suffix arrays: a new method for on-line string searches"). Texts are compared up to
// kSortedTokens tokens, and kDocumentEnd comes before all tokens. Places with equal texts are in
// ascending order.
#ifndef TANDEM_COMMON_RETRIEVAL_RETRIEVAL_FORMAT_H_
#define TANDEM_COMMON_RETRIEVAL_RETRIEVAL_FORMAT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace tandem {

inline constexpr std::array<char, 8> kRetrievalMagic = {'T', 'A', 'N', 'D', 'E', 'M', 'R', 'I'};
inline constexpr uint32_t kRetrievalVersion = 1;
inline constexpr int32_t kDocumentEnd = -1;
inline constexpr uint32_t kSortedTokens = 48;
inline constexpr uint64_t kMostRetrievalTokens = std::numeric_limits<uint32_t>::max();

struct RetrievalHeader {
  std::array<char, 8> magic = kRetrievalMagic;
  uint32_t version = kRetrievalVersion;
  uint32_t reserved = 0;
  uint64_t num_tokens = 0;
  uint64_t num_places = 0;
  std::array<uint8_t, 32> vocabulary = {};  // Tokenizer::Fingerprint
};
static_assert(sizeof(RetrievalHeader) == 64);

}  // namespace tandem

#endif  // TANDEM_COMMON_RETRIEVAL_RETRIEVAL_FORMAT_H_
