// The alphabet of byte-level BPE, which writes each byte as one printable character (Radford et al.
// 2019, GPT-2's bytes_to_unicode). The printable characters of Latin-1 stand for themselves. The
// other bytes are written as U+0100 and the following characters, in order.
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
