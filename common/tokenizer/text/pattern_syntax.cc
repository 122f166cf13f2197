#include "common/tokenizer/text/pattern_syntax.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "common/status.h"
#include "common/tokenizer/text/unicode.h"

namespace tandem {
namespace {

// Contents of classes: the property White_Space (Unicode 6.3 and later), and the rest.
constexpr std::string_view kSpace =
    R"(\x09-\x0D\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kNoSpace =
    R"(\x00-\x08\x0E-\x1F\x21-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027})"
    R"(\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";
// Alphabetic characters, marks, decimal digits, connectors, and the other numbers of Latin-1.
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nl}\p{Nd}\p{Pc}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169})"
    R"(\x{1F170}-\x{1F189}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";
constexpr std::string_view kHex = "0-9a-fA-F";

// General categories. Any other property name is taken for a script.
constexpr std::array<std::string_view, 37> kCategories = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl",
    "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk",
    "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Cs", "Co", "Cn"};

// Pairs of letters that are the case folding of one character (ß, ﬁ, ﬆ ...). Oniguruma matches that
// character too.
constexpr std::array<std::string_view, 5> kFoldedPairs = {"ss", "ff", "fi", "fl", "st"};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsHexDigit(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Makes one pass over the pattern. It remembers where the last atom began, because one construct
// must be rewritten around the atom.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  absl::StatusOr<std::string> Run() {
    while (!AtEnd()) TANDEM_RETURN_IF_ERROR(Item());
    if (!groups_.empty()) return Refuse("a group is not closed");
    return std::move(out_);
  }

 private:
  struct Group {
    size_t start;   // position in out_
    bool caseless;  // setting outside the group
  };

  bool AtEnd() const { return position_ == in_.size(); }
  std::string_view Rest() const { return in_.substr(position_); }
  bool Accept(std::string_view text) {
    if (!Rest().starts_with(text)) return false;
    position_ += text.size();
    return true;
  }
  absl::Status Refuse(const std::string& what) const {
    return InvalidArgument(what + " (at byte " + std::to_string(position_) + " of the pattern)");
  }
  void BeginAtom() {
    atom_ = out_.size();
    last_literal_ = 0;
  }
  void Copy() {
    const size_t begin = position_;
    NextCharacter(in_, position_);
    out_ += in_.substr(begin, position_ - begin);
  }

  absl::Status Item() {
    switch (in_[position_]) {
      case '(':
        return OpenGroup();
      case ')':
        return CloseGroup();
      case '[':
        BeginAtom();
        return Class();
      case '\\':
        BeginAtom();
        return Escape();
      case '*':
      case '+':
      case '?':
        Copy();
        last_literal_ = 0;
        return RepetitionMode();
      case '{':
        return Interval();
      case '|':
      case '^':
      case '$':
      case '.':
        BeginAtom();
        Copy();
        return absl::OkStatus();
      default:
        return Literal();
    }
  }

  absl::Status Literal() {
    const char literal = in_[position_];
    if (caseless_) {
      if (static_cast<unsigned char>(literal) >= 0x80) {
        return Refuse("a letter outside of ASCII where case is ignored is not supported");
      }
      const std::array<char, 2> pair = {last_literal_, Lower(literal)};
      if (std::find(kFoldedPairs.begin(), kFoldedPairs.end(),
                    std::string_view(pair.data(), pair.size())) != kFoldedPairs.end()) {
        return Refuse(std::string(pair.data(), pair.size()) +
                      " where case is ignored is not supported");
      }
    }
    BeginAtom();
    last_literal_ = Lower(literal);
    Copy();
    return absl::OkStatus();
  }

  absl::Status OpenGroup() {
    const bool at_start = out_.empty() || out_.back() == '(' || out_.back() == ':';
    groups_.push_back({out_.size(), caseless_});
    last_literal_ = 0;
    for (const std::string_view header : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (Accept(header)) {
        out_ += header;
        return absl::OkStatus();
      }
    }
    for (const std::string_view header : {"(?i:", "(?-i:", "(?i)"}) {
      if (!Accept(header)) continue;
      out_ += header;
      caseless_ = header[2] == 'i';
      if (header.back() == ')') {
        // Ruby reads a(?i)b|c as a(?i:b|c), and PCRE2 reads it as (a(?i)b)|((?i)c). They agree only
        // at the start of a group.
        if (!at_start) return Refuse("(?i) that is not at the start of a group is not supported");
        groups_.pop_back();
      }
      return absl::OkStatus();
    }
    if (Rest().starts_with("(?") || Rest().starts_with("(*")) {
      return Refuse(std::string(Rest().substr(0, 4)) + "...) is not supported");
    }
    Copy();
    return absl::OkStatus();
  }

  absl::Status CloseGroup() {
    if (groups_.empty()) return Refuse("a ) that closes nothing");
    BeginAtom();
    Copy();
    atom_ = groups_.back().start;
    caseless_ = groups_.back().caseless;
    groups_.pop_back();
    return absl::OkStatus();
  }

  // After a repetition, ? makes it lazy and + makes it possessive, in both syntaxes.
  absl::Status RepetitionMode() {
    if (!AtEnd() && (in_[position_] == '?' || in_[position_] == '+')) Copy();
    return absl::OkStatus();
  }

  std::string Digits() {
    const size_t begin = position_;
    while (!AtEnd() && IsDigit(in_[position_])) ++position_;
    return std::string(in_.substr(begin, position_ - begin));
  }

  // Reads {n}, {n,}, {,m} or {n,m}. Any other brace is a literal.
  absl::Status Interval() {
    const size_t begin = position_++;
    const std::string low = Digits();
    const bool has_comma = Accept(",");
    const std::string high = has_comma ? Digits() : low;
    if (!Accept("}") || (low.empty() && high.empty())) {
      position_ = begin + 1;
      BeginAtom();
      out_ += "\\{";
      return absl::OkStatus();
    }
    last_literal_ = 0;
    const std::string interval =
        "{" + (low.empty() ? "0" : low) + (has_comma ? "," + high : "") + "}";
    if (!has_comma && Rest().starts_with("?")) return Refuse(interval + "? is not supported");
    if (Accept("+")) {
      out_.insert(atom_, "(?:");
      out_ += interval + ")+";
      return absl::OkStatus();
    }
    out_ += interval;
    return RepetitionMode();
  }

  // Reads \p{Name}, \P{Name} or \p{^Name}. position_ is after the p.
  absl::StatusOr<std::string> Property(bool negative) {
    const size_t end = in_.find('}', position_);
    if (!Accept("{") || end == std::string_view::npos) return Refuse("\\p without {name}");
    if (Accept("^")) negative = !negative;
    const std::string name(in_.substr(position_, end - position_));
    position_ = end + 1;
    if (!std::all_of(name.begin(), name.end(), [](char c) { return IsLetter(c) || c == '_'; })) {
      return Refuse(std::string("the property \\p{") + name + "} is not supported");
    }
    const bool is_category =
        std::find(kCategories.begin(), kCategories.end(), name) != kCategories.end();
    return std::string(negative ? "\\P{" : "\\p{") + (is_category ? "" : "sc:") + name + "}";
  }

  // Returns an escape that stands for one character and means the same inside and outside of a
  // class. Returns nothing if `kind` is something else.
  absl::StatusOr<std::optional<std::string>> CharacterEscape(char kind) {
    switch (kind) {
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e':
        return std::string("\\") + kind;
      case 'v':
        return std::string("\\x0B");
      case 'x':
      case 'u': {
        const bool braces = kind == 'x' && Accept("{");
        const size_t begin = position_;
        const size_t limit = braces ? 6 : kind == 'x' ? 2 : 4;
        while (!AtEnd() && IsHexDigit(in_[position_]) && position_ - begin < limit) ++position_;
        const std::string digits(in_.substr(begin, position_ - begin));
        const bool whole = braces ? !digits.empty() && Accept("}") : digits.size() == limit;
        // Oniguruma reads a two-digit escape from 80 on as a byte of UTF-8.
        if (!whole || (kind == 'x' && !braces && digits[0] > '7')) {
          return Refuse(std::string("the escape \\") + kind + digits + " is not supported");
        }
        return "\\x{" + digits + "}";
      }
      default:
        if (IsLetter(kind) || IsDigit(kind) || static_cast<unsigned char>(kind) >= 0x80) {
          return std::optional<std::string>();
        }
        return std::string("\\") + kind;  // escaped punctuation
    }
  }

  absl::Status Escape() {
    ++position_;
    if (AtEnd()) return Refuse("the pattern ends in a backslash");
    const char kind = in_[position_++];
    const auto set = [](std::string_view inside, bool negative = false) {
      return (negative ? "[^" : "[") + std::string(inside) + "]";
    };
    switch (kind) {
      case 's':
      case 'S':
        out_ += set(kSpace, kind == 'S');
        return absl::OkStatus();
      case 'w':
      case 'W':
        out_ += set(kWord, kind == 'W');
        return absl::OkStatus();
      case 'h':
      case 'H':
        out_ += set(kHex, kind == 'H');
        return absl::OkStatus();
      case 'd':
        out_ += "\\p{Nd}";
        return absl::OkStatus();
      case 'D':
        out_ += "\\P{Nd}";
        return absl::OkStatus();
      case 'b':
      case 'B': {
        const std::string word = set(kWord);
        const std::string here = kind == 'b' ? "(?!" : "(?=";
        const std::string there = kind == 'b' ? "(?=" : "(?!";
        out_ += "(?:(?<=" + word + ")" + here + word + ")|(?<!" + word + ")" + there + word + "))";
        return absl::OkStatus();
      }
      case 'A':
      case 'z':
      case 'Z':
        out_ += std::string("\\") + kind;
        return absl::OkStatus();
      case 'p':
      case 'P': {
        TANDEM_ASSIGN_OR_RETURN(const std::string property, Property(kind == 'P'));
        out_ += property;
        return absl::OkStatus();
      }
      default: {
        TANDEM_ASSIGN_OR_RETURN(const std::optional<std::string> character, CharacterEscape(kind));
        if (!character) return Refuse(std::string("the escape \\") + kind + " is not supported");
        out_ += *character;
        return absl::OkStatus();
      }
    }
  }

  // Returns a set in a class. position_ is after its letter. Returns nothing if `kind` is not a
  // set.
  absl::StatusOr<std::optional<std::string>> ClassSet(char kind) {
    switch (kind) {
      case 's':
        return std::string(kSpace);
      case 'S':
        return std::string(kNoSpace);
      case 'w':
        return std::string(kWord);
      case 'h':
        return std::string(kHex);
      case 'd':
        return std::string("\\p{Nd}");
      case 'D':
        return std::string("\\P{Nd}");
      case 'p':
      case 'P':
        return Property(kind == 'P');
      default:
        return std::optional<std::string>();
    }
  }

  absl::Status Class() {
    Copy();
    if (Accept("^")) out_ += '^';
    if (Rest().starts_with("]")) return Refuse("an empty class");
    bool after_set = false;  // a hyphen after a set is a literal
    while (!AtEnd()) {
      if (Accept("]")) {
        out_ += ']';
        return absl::OkStatus();
      }
      if (Rest().starts_with("[") || Rest().starts_with("&&")) {
        return Refuse("a class inside a class is not supported");
      }
      if (!Accept("\\")) {
        if (after_set && Rest().starts_with("-")) out_ += '\\';
        Copy();
        after_set = false;
        continue;
      }
      if (AtEnd()) break;
      const char kind = in_[position_++];
      TANDEM_ASSIGN_OR_RETURN(const std::optional<std::string> set, ClassSet(kind));
      if (set) {
        if (out_.back() == '-' && out_[out_.size() - 2] != '\\') {
          return Refuse("a range that ends in a set");
        }
        out_ += *set;
        after_set = true;
        continue;
      }
      TANDEM_ASSIGN_OR_RETURN(const std::optional<std::string> character, CharacterEscape(kind));
      if (!character) {
        return Refuse(std::string("the escape \\") + kind + " in a class is not supported");
      }
      out_ += *character;
      after_set = false;
    }
    return Refuse("a class is not closed");
  }

  std::string_view in_;
  size_t position_ = 0;
  std::string out_;
  size_t atom_ = 0;        // beginning of the last atom in out_
  char last_literal_ = 0;  // in lower case; 0 if the last item was not a literal
  bool caseless_ = false;
  std::vector<Group> groups_;
};

}  // namespace

absl::StatusOr<std::string> TranslatePattern(std::string_view oniguruma) {
  return Translator(oniguruma).Run();
}

}  // namespace tandem
