#include "services/cli/terminal/utf8.h"

#include <utf8proc.h>

namespace tandem::cli {

size_t ValidUtf8Prefix(const std::string& text) {
  size_t position = 0;
  while (position < text.size()) {
    utf8proc_int32_t code_point;
    const utf8proc_ssize_t bytes =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + position,
                         static_cast<utf8proc_ssize_t>(text.size() - position), &code_point);
    if (bytes <= 0) break;
    position += bytes;
  }
  return position;
}

}  // namespace tandem::cli
