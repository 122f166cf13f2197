#include "common/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "common/status.h"
#include "common/tokenizer/text/byte_level.h"
#include "common/tokenizer/text/pattern.h"
#include "common/tokenizer/text/unicode.h"

namespace tandem {
namespace {

constexpr size_t kMaxPreTokenizers = 64;  // Each may cost a compiled pattern.

// ByteLevel splits by this pattern if its field use_regex is true (Radford et al. 2019).
constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Rust's \p{N} (Unicode 17) and \w, written for Oniguruma.
constexpr const char* kDigit = R"([\p{N}\x{11DE0}-\x{11DE9}\x{16FF4}-\x{16FF6}])";
constexpr const char* kWordOrNot =
    R"((?:(?![\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE}])[\w\x{200C}\x{200D}])+|)"
    R"((?:[^\w\s\x{200C}\x{200D}]|[\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE}])+)";

// The handling of the matches.
enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// A part of the text: a match, or the text between two matches.
struct Stretch {
  size_t start;
  size_t end;
  bool is_match;
};

// Splits the text into matches and the parts between them.
std::vector<Stretch> Partition(const std::vector<Pattern::Match>& matches, size_t size,
                               bool invert) {
  std::vector<Stretch> stretches;
  stretches.reserve(matches.size());
  size_t end = 0;
  for (const Pattern::Match& match : matches) {
    if (match.start > end) stretches.push_back({end, match.start, invert});
    stretches.push_back({match.start, match.end, !invert});
    end = match.end;
  }
  if (end < size) stretches.push_back({end, size, invert});
  return stretches;
}

// Joins neighbors according to the behavior. A part that is removed becomes empty.
std::vector<Stretch> Join(std::vector<Stretch> stretches, Behavior behavior) {
  switch (behavior) {
    case Behavior::kIsolated:
      return stretches;
    case Behavior::kRemoved:
      for (Stretch& stretch : stretches) {
        if (stretch.is_match) stretch.end = stretch.start;
      }
      return stretches;
    case Behavior::kMergedWithNext: {
      // A match is joined with the part after it, unless that part is a match too. The loop runs
      // from the right, like Hugging Face's.
      std::vector<Stretch> joined;
      bool next_is_match = false;
      for (auto stretch = stretches.rbegin(); stretch != stretches.rend(); ++stretch) {
        if (stretch->is_match && !next_is_match && !joined.empty()) {
          joined.back().start = stretch->start;
        } else {
          joined.push_back(*stretch);
        }
        next_is_match = stretch->is_match;
      }
      std::reverse(joined.begin(), joined.end());
      return joined;
    }
    case Behavior::kMergedWithPrevious:
    case Behavior::kContiguous: {
      std::vector<Stretch> joined;
      bool previous_is_match = false;
      for (const Stretch& stretch : stretches) {
        const bool join = behavior == Behavior::kContiguous
                              ? stretch.is_match == previous_is_match
                              : stretch.is_match && !previous_is_match;
        if (join && !joined.empty()) {
          joined.back().end = stretch.end;
        } else {
          joined.push_back(stretch);
        }
        previous_is_match = stretch.is_match;
      }
      return joined;
    }
  }
  return stretches;
}

// Splits the text at matches.
class Split : public PreTokenizerStep {
 public:
  Split(Behavior behavior, bool invert) : behavior_(behavior), invert_(invert) {}

  absl::Status Apply(TextView piece, TextSink next) const final {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<Pattern::Match> matches, FindAll(piece.text));
    for (const Stretch& part : Join(Partition(matches, piece.text.size(), invert_), behavior_)) {
      TANDEM_RETURN_IF_ERROR(next({piece.text.substr(part.start, part.end - part.start),
                                   piece.at_origin && part.start == 0}));
    }
    return absl::OkStatus();
  }

 private:
  virtual absl::StatusOr<std::vector<Pattern::Match>> FindAll(std::string_view text) const = 0;

  Behavior behavior_;
  bool invert_;
};

class PatternSplit : public Split {
 public:
  PatternSplit(Pattern pattern, Behavior behavior, bool invert)
      : Split(behavior, invert), pattern_(std::move(pattern)) {}

 private:
  absl::StatusOr<std::vector<Pattern::Match>> FindAll(std::string_view text) const override {
    return pattern_.FindAll(text);
  }

  Pattern pattern_;
};

class PunctuationSplit : public Split {
 public:
  explicit PunctuationSplit(Behavior behavior) : Split(behavior, /*invert=*/false) {}

 private:
  absl::StatusOr<std::vector<Pattern::Match>> FindAll(std::string_view text) const override {
    std::vector<Pattern::Match> matches;
    for (size_t end = 0; end < text.size();) {
      const size_t start = end;
      if (IsPunctuation(NextCharacter(text, end))) matches.push_back({start, end});
    }
    return matches;
  }
};

class AddPrefixSpace : public PreTokenizerStep {
 public:
  absl::Status Apply(TextView piece, TextSink next) const override {
    if (piece.text.starts_with(' ')) return next(piece);
    std::string prefixed(1, ' ');
    prefixed += piece.text;
    return next({prefixed, piece.at_origin});
  }
};

class ByteLevel : public PreTokenizerStep {
 public:
  absl::Status Apply(TextView piece, TextSink next) const override {
    const std::string mapped = ToByteLevel(piece.text);
    return next({mapped, piece.at_origin});
  }
};

// Replaces spaces by a visible character, which may also be put before the text.
class Metaspace : public PreTokenizerStep {
 public:
  enum class Prepend { kAlways, kFirst, kNever };
  Metaspace(std::string replacement, Prepend prepend)
      : replacement_(std::move(replacement)), prepend_(prepend) {}

  absl::Status Apply(TextView piece, TextSink next) const override {
    std::string text;
    for (const char c : piece.text) {
      if (c == ' ') {
        text += replacement_;
      } else {
        text += c;
      }
    }
    const bool wanted =
        prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && piece.at_origin);
    if (wanted && !text.starts_with(replacement_)) text.insert(0, replacement_);
    return next({text, piece.at_origin});
  }

 private:
  std::string replacement_;
  Prepend prepend_;
};

absl::StatusOr<Behavior> BehaviorOf(const JsonField& field) {
  TANDEM_ASSIGN_OR_RETURN(const std::string name, field.String());
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  return field.Error(Quoted(name) +
                     " is not supported (want Removed, Isolated, MergedWithPrevious, "
                     "MergedWithNext or Contiguous)");
}

absl::StatusOr<Metaspace::Prepend> PrependOf(const JsonField& field) {
  const JsonField scheme = field.Member("prepend_scheme");
  if (!scheme.present()) {
    // Files from before 2024 use a flag instead.
    TANDEM_ASSIGN_OR_RETURN(const bool prepend, field.Member("add_prefix_space").Bool(true));
    return prepend ? Metaspace::Prepend::kAlways : Metaspace::Prepend::kNever;
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string name, scheme.String());
  if (name == "always") return Metaspace::Prepend::kAlways;
  if (name == "first") return Metaspace::Prepend::kFirst;
  if (name == "never") return Metaspace::Prepend::kNever;
  return scheme.Error(Quoted(name) + " is not supported (want always, first or never)");
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::FromJson(const JsonField& field) {
  PreTokenizer pre_tokenizer;
  if (field.present()) TANDEM_RETURN_IF_ERROR(pre_tokenizer.AddSteps(field));
  return pre_tokenizer;
}

absl::Status PreTokenizer::AddSteps(const JsonField& field) {
  if (steps_.size() >= kMaxPreTokenizers) {
    return field.Error("more than " + std::to_string(kMaxPreTokenizers) + " steps");
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string type, field.Type());
  const auto add_split = [&](const char* regex, Behavior behavior, bool invert) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Regex(regex));
    steps_.push_back(std::make_unique<PatternSplit>(std::move(pattern), behavior, invert));
    return absl::OkStatus();
  };

  if (type == "Sequence") {
    const JsonField parts = field.Member("pretokenizers");
    TANDEM_RETURN_IF_ERROR(parts.CheckArray());
    for (size_t i = 0; i < parts.size(); ++i) TANDEM_RETURN_IF_ERROR(AddSteps(parts.Element(i)));
    return absl::OkStatus();
  }
  if (type == "Split") {
    TANDEM_ASSIGN_OR_RETURN(Pattern pattern, Pattern::FromJson(field.Member("pattern")));
    TANDEM_ASSIGN_OR_RETURN(const Behavior behavior, BehaviorOf(field.Member("behavior")));
    TANDEM_ASSIGN_OR_RETURN(const bool invert, field.Member("invert").Bool(false));
    steps_.push_back(std::make_unique<PatternSplit>(std::move(pattern), behavior, invert));
    return absl::OkStatus();
  }
  if (type == "ByteLevel") {
    TANDEM_ASSIGN_OR_RETURN(const bool prefix, field.Member("add_prefix_space").Bool(true));
    TANDEM_ASSIGN_OR_RETURN(const bool use_regex, field.Member("use_regex").Bool(true));
    if (prefix) steps_.push_back(std::make_unique<AddPrefixSpace>());
    if (use_regex) TANDEM_RETURN_IF_ERROR(add_split(kGpt2Pattern, Behavior::kIsolated, false));
    steps_.push_back(std::make_unique<ByteLevel>());
    return absl::OkStatus();
  }
  if (type == "Metaspace") {
    TANDEM_ASSIGN_OR_RETURN(const std::string replacement, field.Member("replacement").Character());
    TANDEM_ASSIGN_OR_RETURN(const Metaspace::Prepend prepend, PrependOf(field));
    TANDEM_ASSIGN_OR_RETURN(const bool split, field.Member("split").Bool(true));
    steps_.push_back(std::make_unique<Metaspace>(replacement, prepend));
    if (split) {
      steps_.push_back(std::make_unique<PatternSplit>(Pattern::Literal(replacement),
                                                      Behavior::kMergedWithNext, false));
    }
    return absl::OkStatus();
  }
  if (type == "Digits") {
    TANDEM_ASSIGN_OR_RETURN(const bool each, field.Member("individual_digits").Bool(false));
    return add_split(kDigit, each ? Behavior::kIsolated : Behavior::kContiguous, false);
  }
  if (type == "Punctuation") {
    const JsonField behavior_field = field.Member("behavior");
    Behavior behavior = Behavior::kIsolated;
    if (behavior_field.present()) {
      TANDEM_ASSIGN_OR_RETURN(behavior, BehaviorOf(behavior_field));
    }
    steps_.push_back(std::make_unique<PunctuationSplit>(behavior));
    return absl::OkStatus();
  }
  if (type == "Whitespace") return add_split(kWordOrNot, Behavior::kRemoved, true);
  if (type == "WhitespaceSplit") return add_split(R"(\s)", Behavior::kRemoved, false);
  return field.Member("type").Error(
      Quoted(type) +
      " is not supported (want Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, "
      "WhitespaceSplit or Sequence)");
}

absl::Status PreTokenizer::SplitFrom(size_t step, TextView piece, TextSink word) const {
  if (piece.text.empty()) return absl::OkStatus();
  if (step == steps_.size()) return word(piece);
  return steps_[step]->Apply(piece, [&](TextView part) { return SplitFrom(step + 1, part, word); });
}

}  // namespace tandem
