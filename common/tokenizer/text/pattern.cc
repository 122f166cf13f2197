#include "common/tokenizer/text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "common/status.h"
#include "common/tokenizer/text/pattern_syntax.h"
#include "common/tokenizer/text/unicode.h"
#include "common/tokenizer/text/unicode_versions.h"

namespace tandem {
namespace {

// Bounds of one search. PCRE2 counts backtracking from one starting point only. A pattern that
// fails slowly at every starting point takes quadratic time. The search therefore tries starting
// points in windows, and a long text also has a deadline.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 32 * 1024;
constexpr size_t kMaxJitStackBytes = 16 << 20;
constexpr size_t kMinWindowBytes = 256;
constexpr size_t kMaxWindowBytes = size_t{1} << 30;
constexpr size_t kLongTextBytes = 16 << 10;
constexpr std::chrono::milliseconds kSlowCall(20);
constexpr std::chrono::seconds kDeadline(3);

// Short texts that reveal exponential patterns, and the match limit that such patterns then reach
// at once.
constexpr uint32_t kProbeMatchLimit = 100'000;
constexpr size_t kProbeLength = 48;

template <auto kFree>
struct Freer {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
using MatchData = std::unique_ptr<pcre2_match_data, Freer<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freer<pcre2_match_context_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Freer<pcre2_compile_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Freer<pcre2_jit_stack_free>>;

std::string Pcre2Message(int error) {
  std::array<PCRE2_UCHAR, 256> message;
  pcre2_get_error_message(error, message.data(), message.size());
  return reinterpret_cast<const char*>(message.data());
}

// A search of one text from left to right.
class Search {
 public:
  Search(const pcre2_code* code, std::string_view text, uint32_t match_limit)
      : code_(code),
        text_(text),
        context_(pcre2_match_context_create(nullptr)),
        data_(pcre2_match_data_create(1, nullptr)),
        is_long_(text.size() > kLongTextBytes) {
    pcre2_set_match_limit(context_.get(), match_limit);
    pcre2_set_heap_limit(context_.get(), kHeapLimitKib);
    if (is_long_) begin_ = last_call_ = std::chrono::steady_clock::now();
  }

  // Returns the first match that starts at or after `start`.
  absl::StatusOr<std::optional<Pattern::Match>> From(size_t start) {
    for (;;) {
      const size_t last_start = is_long_ ? start + window_bytes_ - 1 : text_.size();
      pcre2_set_offset_limit(context_.get(), last_start);
      const int result = Match(start);
      if (is_long_ && !AdaptWindow()) return TooSlow();
      if (result >= 0) {
        const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data_.get());
        return Pattern::Match{bounds[0], bounds[1]};
      }
      if (result == PCRE2_ERROR_MATCHLIMIT || result == PCRE2_ERROR_HEAPLIMIT ||
          result == PCRE2_ERROR_JIT_STACKLIMIT || result == PCRE2_ERROR_DEPTHLIMIT) {
        return TooSlow();
      }
      if (result != PCRE2_ERROR_NOMATCH) {
        return Internal("tokenizer pattern: " + Pcre2Message(result));
      }
      if (last_start >= text_.size()) return std::optional<Pattern::Match>();
      start = last_start + 1;
      while (start < text_.size() && IsContinuation(text_[start])) ++start;
    }
  }

 private:
  static bool IsContinuation(char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
  }
  static absl::Status TooSlow() {
    return InvalidArgument("text: the tokenizer's pattern takes too long on it");
  }

  // Keeps calls short, so that the deadline is noticed, but not shorter than needed. Returns false
  // if the deadline has passed.
  bool AdaptWindow() {
    const auto now = std::chrono::steady_clock::now();
    const bool was_slow = now - last_call_ > kSlowCall;
    window_bytes_ = was_slow ? std::max(window_bytes_ / 2, kMinWindowBytes)
                             : std::min(window_bytes_ * 2, kMaxWindowBytes);
    last_call_ = now;
    return now - begin_ < kDeadline;
  }

  int Match(size_t start) {
    int result = RunMatch(start);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT && jit_stack_ == nullptr) {
      jit_stack_.reset(pcre2_jit_stack_create(1 << 16, kMaxJitStackBytes, nullptr));
      pcre2_jit_stack_assign(context_.get(), nullptr, jit_stack_.get());
      result = RunMatch(start);
    }
    return result;
  }
  int RunMatch(size_t start) {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), start,
                       PCRE2_NO_UTF_CHECK, data_.get(), context_.get());
  }

  const pcre2_code* code_;
  std::string_view text_;
  MatchContext context_;
  MatchData data_;
  JitStack jit_stack_;  // made if the machine stack is too small
  bool is_long_;
  size_t window_bytes_ = kMinWindowBytes;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point last_call_;
};

}  // namespace

void Pattern::CodeDeleter::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

absl::StatusOr<Pattern> Pattern::Regex(const std::string& regex) {
  constexpr size_t kMaxPatternBytes = 16 << 10;
  if (regex.size() > kMaxPatternBytes) {
    return InvalidArgument("pattern of " + std::to_string(regex.size()) + " bytes (want at most " +
                           std::to_string(kMaxPatternBytes) + ")");
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string translated, TranslatePattern(regex));

  const CompileContext context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  Pattern pattern;
  pattern.code_.reset(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT,
      &error, &offset, context.get()));
  if (pattern.code_ == nullptr) {
    return InvalidArgument("pattern " + Quoted(regex) +
                           " does not compile: " + Pcre2Message(error));
  }
  // If there is no just-in-time compiler for this processor, the interpreter runs the pattern.
  pcre2_jit_compile(pattern.code_.get(), PCRE2_JIT_COMPLETE);

  for (const char filler : {'a', 'A', ' ', '1', '\n', '-'}) {
    for (const char last : {'!', 'z'}) {
      const std::string probe = std::string(kProbeLength, filler) + last;
      if (!pattern.FindAllBounded(probe, kProbeMatchLimit).ok()) {
        return InvalidArgument("pattern " + Quoted(regex) + " backtracks exponentially");
      }
    }
  }
  return pattern;
}

Pattern Pattern::Literal(const std::string& literal) {
  Pattern pattern;
  pattern.literal_ = literal;
  return pattern;
}

absl::StatusOr<Pattern> Pattern::FromJson(const JsonField& field) {
  TANDEM_RETURN_IF_ERROR(field.CheckObject());
  const JsonField regex = field.Member("Regex");
  const JsonField literal = field.Member("String");
  if (regex.present() == literal.present()) return field.Error("want one of Regex and String");
  if (literal.present()) {
    TANDEM_ASSIGN_OR_RETURN(const std::string text, literal.String());
    if (text.empty()) return literal.Error("empty");
    return Literal(text);
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string text, regex.String());
  absl::StatusOr<Pattern> pattern = Regex(text);
  if (!pattern.ok()) return regex.Error(std::string(pattern.status().message()));
  return pattern;
}

absl::StatusOr<std::vector<Pattern::Match>> Pattern::FindAll(std::string_view text) const {
  return FindAllBounded(text, kMatchLimit);
}

absl::StatusOr<std::vector<Pattern::Match>> Pattern::FindAllBounded(std::string_view text,
                                                                    uint32_t match_limit) const {
  std::vector<Match> matches;
  if (code_ == nullptr) {
    for (size_t at = text.find(literal_); at != std::string_view::npos;
         at = text.find(literal_, at + literal_.size())) {
      matches.push_back({at, at + literal_.size()});
    }
    return matches;
  }
  const std::optional<std::string> known = AsKnownSinceUnicode14(text);
  if (known) text = *known;
  Search search(code_.get(), text, match_limit);
  size_t next = 0;
  while (next <= text.size()) {
    TANDEM_ASSIGN_OR_RETURN(const std::optional<Match> match, search.From(next));
    if (!match) break;
    const bool behind_a_match = !matches.empty() && matches.back().end == match->end;
    if (match->start == match->end && behind_a_match) {
      if (next == text.size()) break;
      NextCharacter(text, next);
      continue;
    }
    matches.push_back(*match);
    next = match->end;
  }
  return matches;
}

}  // namespace tandem
