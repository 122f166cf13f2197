// The pattern of a Split or a Replace: a regular expression or a literal.
#ifndef TANDEM_COMMON_TOKENIZER_TEXT_PATTERN_H_
#define TANDEM_COMMON_TOKENIZER_TEXT_PATTERN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/text/json_field.h"

// PCRE2's own type, so that users of this header need not include pcre2.h.
struct pcre2_real_code_8;

namespace tandem {

// Immutable, so any thread may use it.
class Pattern {
 public:
  struct Match {
    size_t start;  // bytes
    size_t end;
  };

  // Makes a regular expression from Oniguruma's syntax (pattern_syntax.h). Refuses patterns that do
  // not compile or that take exponentially long on short texts.
  static absl::StatusOr<Pattern> Regex(const std::string& regex);
  // PRECOND: `literal` is not empty.
  static Pattern Literal(const std::string& literal);
  // Takes {"Regex": ...} or {"String": ...}.
  static absl::StatusOr<Pattern> FromJson(const JsonField& field);

  // Returns all matches from left to right, without overlap, like Oniguruma's iterator: an empty
  // match never follows directly after a match. PRECOND: text is UTF-8. INVALID_ARGUMENT: the
  // pattern takes too long on this text.
  absl::StatusOr<std::vector<Match>> FindAll(std::string_view text) const;

 private:
  struct CodeDeleter {
    void operator()(pcre2_real_code_8* code) const;
  };

  Pattern() = default;
  absl::StatusOr<std::vector<Match>> FindAllBounded(std::string_view text,
                                                    uint32_t match_limit) const;

  std::string literal_;  // if there is no code
  std::unique_ptr<pcre2_real_code_8, CodeDeleter> code_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_TOKENIZER_TEXT_PATTERN_H_
