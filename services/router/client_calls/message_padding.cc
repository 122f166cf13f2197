#include "services/router/client_calls/message_padding.h"

#include <algorithm>
#include <string>

namespace tandem {
namespace {

// A piece takes its tag, one byte for its length, and its bytes. A longer piece would need more
// bytes for its length.
constexpr size_t kPieceHead = 2;
constexpr size_t kLongestPiece = kPieceHead + 127;

}  // namespace

void PadToMultiple(size_t bytes, v1::GenerateResponse* response) {
  response->clear_padding();
  if (bytes == 0) return;
  size_t missing = (bytes - response->ByteSizeLong() % bytes) % bytes;
  if (missing == 1) missing += bytes;
  while (missing > 0) {
    size_t piece = std::min(missing, kLongestPiece);
    if (missing - piece == 1) --piece;  // no piece has one byte
    response->add_padding(std::string(piece - kPieceHead, '\0'));
    missing -= piece;
  }
}

}  // namespace tandem
