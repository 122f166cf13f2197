// The alphabet of byte-level BPE: each byte is written as one printable character (Radford et al.
// 2019, GPT-2's bytes_to_unicode): the printable ones of Latin-1 stand for themselves, the others
// are U+0100 and up in order.
#ifndef TANDEM_COMMON_TOKENIZER_TEXT_BYTE_LEVEL_H_
#define TANDEM_COMMON_TOKENIZER_TEXT_BYTE_LEVEL_H_

#include <string>
#include <string_view>

namespace tandem {

// Returns each byte of `bytes` as its character.
std::string ToByteLevel(std::string_view bytes);

// Returns the bytes that the characters of `text` stand for, or `text` itself if one of its
// characters is not in the alphabet.
std::string FromByteLevel(std::string_view text);

}  // namespace tandem

#endif  // TANDEM_COMMON_TOKENIZER_TEXT_BYTE_LEVEL_H_
