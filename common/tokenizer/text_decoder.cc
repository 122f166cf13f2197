#include "common/tokenizer/text_decoder.h"

#include <charconv>
#include <utility>

#include "common/status.h"
#include "common/tokenizer/text/byte_level.h"
#include "common/tokenizer/text/unicode.h"

namespace tandem {
namespace {

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  size_t done = 0;
  for (size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, done)) {
    result += text.substr(done, at - done);
    result += to;
    done = at + from.size();
  }
  result += text.substr(done);
  return result;
}

// Returns the byte that <0xNN> stands for.
std::optional<char> ByteOf(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const char* end = token.data() + 5;
  // Hugging Face's decoder uses Rust's parser of numbers, which accepts a sign.
  const char* begin = token.data() + (token[3] == '+' ? 4 : 3);
  unsigned char byte = 0;
  const auto [parsed_to, error] = std::from_chars(begin, end, byte, 16);
  if (error != std::errc() || parsed_to != end) return std::nullopt;
  return static_cast<char>(byte);
}

std::string Replacements(size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += kReplacementCharacter;
  return text;
}

absl::Status OrderError(const JsonField& field, const std::string& type, const char* want) {
  return field.Error(type + " at this place of the sequence is not supported (want it " + want +
                     ")");
}

}  // namespace

absl::StatusOr<TextDecoder> TextDecoder::FromJson(const JsonField& field) {
  TextDecoder decoder;
  if (!field.present()) {
    decoder.join_with_spaces_ = true;
    return decoder;
  }
  Phase phase = Phase::kTokens;
  TANDEM_RETURN_IF_ERROR(decoder.AddPart(field, phase));
  return decoder;
}

absl::Status TextDecoder::AddPart(const JsonField& field, Phase& phase) {
  TANDEM_ASSIGN_OR_RETURN(const std::string type, field.Type());
  if (type == "Sequence") {
    const JsonField parts = field.Member("decoders");
    TANDEM_RETURN_IF_ERROR(parts.CheckArray());
    for (size_t i = 0; i < parts.size(); ++i) {
      TANDEM_RETURN_IF_ERROR(AddPart(parts.Element(i), phase));
    }
    return absl::OkStatus();
  }
  if (type == "ByteLevel") {
    if (phase != Phase::kTokens) return OrderError(field, type, "before ByteFallback and Fuse");
    byte_level_ = true;
    phase = Phase::kText;
    return absl::OkStatus();
  }
  if (type == "ByteFallback") {
    if (phase != Phase::kTokens) return OrderError(field, type, "once, before Fuse");
    byte_fallback_ = true;
    phase = Phase::kBytes;
    return absl::OkStatus();
  }
  if (type == "Fuse") {
    phase = Phase::kText;
    return absl::OkStatus();
  }
  if (type == "Strip") return AddStrip(field, phase);
  if (type == "Replace") {
    if (phase != Phase::kTokens) return OrderError(field, type, "before ByteFallback and Fuse");
    const JsonField pattern = field.Member("pattern");
    TANDEM_RETURN_IF_ERROR(pattern.CheckObject());
    TANDEM_ASSIGN_OR_RETURN(const std::string from, pattern.Member("String").String());
    if (from.empty()) return pattern.Member("String").Error("empty");
    TANDEM_ASSIGN_OR_RETURN(const std::string to, field.Member("content").String());
    steps_.push_back({Step::Kind::kReplace, from, to});
    return absl::OkStatus();
  }
  if (type == "Metaspace") {
    if (phase != Phase::kTokens) return OrderError(field, type, "before ByteFallback and Fuse");
    return AddMetaspace(field);
  }
  return field.Member("type").Error(Quoted(type) +
                                    " is not supported (want ByteLevel, Replace, ByteFallback, "
                                    "Fuse, Strip, Metaspace or Sequence)");
}

absl::Status TextDecoder::AddStrip(const JsonField& field, Phase phase) {
  TANDEM_ASSIGN_OR_RETURN(const std::string content, field.Member("content").Character());
  TANDEM_ASSIGN_OR_RETURN(const int64_t start, field.Member("start").Integer());
  TANDEM_ASSIGN_OR_RETURN(const int64_t stop, field.Member("stop").Integer());
  if (start < 0) return field.Member("start").Error(std::to_string(start) + " (want 0 or more)");
  if (stop != 0) {
    return field.Member("stop").Error(std::to_string(stop) + " is not supported (want 0)");
  }
  const auto count = static_cast<size_t>(start);
  if (phase == Phase::kTokens) {
    steps_.push_back({Step::Kind::kStrip, content, "", count});
    return absl::OkStatus();
  }
  if (phase == Phase::kBytes || strip_count_ > 0) {
    return OrderError(field, "Strip", "before ByteFallback, or once after Fuse");
  }
  strip_content_ = content;
  strip_count_ = count;
  return absl::OkStatus();
}

absl::Status TextDecoder::AddMetaspace(const JsonField& field) {
  TANDEM_ASSIGN_OR_RETURN(const std::string from, field.Member("replacement").Character());
  TANDEM_ASSIGN_OR_RETURN(const bool adds_prefix, field.Member("add_prefix_space").Bool(true));
  bool drop_first = adds_prefix;
  const JsonField scheme = field.Member("prepend_scheme");
  if (scheme.present()) {
    TANDEM_ASSIGN_OR_RETURN(const std::string name, scheme.String());
    drop_first = name != "never";
  }
  steps_.push_back({Step::Kind::kMetaspace, from, " ", 0, drop_first});
  return absl::OkStatus();
}

std::string TextDecoder::ApplySteps(std::string_view entry, bool is_first) const {
  if (byte_level_ && steps_.empty()) return FromByteLevel(entry);
  std::string text(entry);
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Step::Kind::kReplace:
        text = ReplaceAll(text, step.from, step.to);
        break;
      case Step::Kind::kMetaspace:
        text = ReplaceAll(text, step.from, is_first && step.drop_first ? "" : step.to);
        break;
      case Step::Kind::kStrip:
        for (size_t i = 0; i < step.count && text.starts_with(step.from); ++i) {
          text.erase(0, step.from.size());
        }
        break;
    }
  }
  return byte_level_ ? FromByteLevel(text) : text;
}

std::string TextDecoder::Next(std::string_view entry, DecodeState& state) const {
  const bool is_first = std::exchange(state.at_start, false);
  const std::string token = ApplySteps(entry, is_first);
  std::string text;
  if (byte_level_) {
    AppendRepairedUtf8(token, state.incomplete, text);
    return StripStart(std::move(text), state);
  }
  if (byte_fallback_) {
    if (const std::optional<char> byte = ByteOf(token)) {
      if (state.byte_run_is_invalid) return StripStart(Replacements(1), state);
      state.incomplete += *byte;
      const Utf8Unit unit =
          FirstUtf8Unit(std::string_view(state.incomplete).substr(state.byte_run_checked));
      if (unit.kind == Utf8Unit::Kind::kCharacter) state.byte_run_checked += unit.length;
      if (unit.kind != Utf8Unit::Kind::kInvalid) return text;
      state.byte_run_is_invalid = true;
      return StripStart(Replacements(std::exchange(state.incomplete, {}).size()), state);
    }
    text = EndByteRun(state);
  }
  if (join_with_spaces_ && !is_first) text += ' ';
  text += token;
  return StripStart(std::move(text), state);
}

std::string TextDecoder::End(DecodeState& state) const {
  std::string text;
  if (byte_fallback_) {
    text = EndByteRun(state);
  } else if (!std::exchange(state.incomplete, {}).empty()) {
    text = kReplacementCharacter;
  }
  return StripStart(std::move(text), state);
}

std::string TextDecoder::EndByteRun(DecodeState& state) const {
  state.byte_run_is_invalid = false;
  state.byte_run_checked = 0;
  std::string run = std::exchange(state.incomplete, {});
  return FindInvalidUtf8(run) ? Replacements(run.size()) : run;
}

std::string TextDecoder::StripStart(std::string text, DecodeState& state) const {
  while (state.may_strip && state.num_stripped < strip_count_ && text.starts_with(strip_content_)) {
    text.erase(0, strip_content_.size());
    ++state.num_stripped;
  }
  if (!text.empty()) state.may_strip = false;
  return text;
}

std::string TextDecoder::TokenBytes(std::string_view entry) const {
  std::string bytes = ApplySteps(entry, /*is_first=*/false);
  if (byte_fallback_) {
    if (const std::optional<char> byte = ByteOf(bytes)) return std::string(1, *byte);
  }
  return join_with_spaces_ ? " " + bytes : bytes;
}

bool TextDecoder::StripsLeadingSpace() const {
  for (const Step& step : steps_) {
    if (step.kind == Step::Kind::kMetaspace && step.drop_first) return true;
  }
  return strip_count_ > 0 && strip_content_ == " ";
}

}  // namespace tandem
