#include "common/chat/jinja_template.h"

#include <cctype>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace tandem {
namespace {

// A text of the engine, freed when this object ends.
class EngineText {
 public:
  EngineText() = default;
  EngineText(const EngineText&) = delete;
  EngineText& operator=(const EngineText&) = delete;
  ~EngineText() {
    if (text_.data != nullptr) tandem_jinja_free_text(&text_);
  }
  TandemJinjaText* get() { return &text_; }
  uint64_t line() const { return text_.line; }
  std::string str() const {
    return text_.data == nullptr
               ? std::string()
               : std::string(reinterpret_cast<const char*>(text_.data), text_.size);
  }

 private:
  TandemJinjaText text_{};
};

// The engine calls this for strftime_now.
size_t FormatTime(int64_t time, const char* format, size_t format_size, char* out,
                  size_t capacity) {
  const std::time_t seconds = time;
  std::tm parts{};
  localtime_r(&seconds, &parts);
  // The mark tells an empty text from one that does not fit.
  const std::string marked = std::string(format, strnlen(format, format_size)) + "!";
  std::vector<char> buffer(capacity + 2);
  const size_t size = std::strftime(buffer.data(), buffer.size(), marked.c_str(), &parts);
  if (size == 0) return capacity + 1;
  std::memcpy(out, buffer.data(), size - 1);
  return size - 1;
}

std::string At(uint64_t line) { return line == 0 ? "" : absl::StrCat(" at line ", line); }

absl::Status FailedRender(TandemJinjaOutcome outcome, const EngineText& text,
                          const ChatTemplateLimits& limits) {
  const std::string place = absl::StrCat("the model's chat template", At(text.line()));
  switch (outcome) {
    case TANDEM_JINJA_RAISED:
      return InvalidArgument(
          absl::StrCat("the model's chat template refuses the messages: ", text.str()));
    case TANDEM_JINJA_OUT_OF_STEPS:
      return InvalidArgument(absl::StrCat(place, " was cut off after ", limits.steps,
                                          " steps, because it loops, makes too much text, or has "
                                          "too many messages"));
    case TANDEM_JINJA_TOO_DEEP:
      return InvalidArgument(absl::StrCat(place, " was cut off, because its macros or loops were ",
                                          "nested deeper than ", limits.depth, " levels"));
    case TANDEM_JINJA_TOO_LONG:
      return InvalidArgument(absl::StrCat("the model's chat template was cut off after ",
                                          limits.output_bytes, " bytes of prompt"));
    case TANDEM_JINJA_BAD_INPUT:
      return InvalidArgument(absl::StrCat("the messages cannot be rendered: ", text.str()));
    case TANDEM_JINJA_OUT_OF_MEMORY:
      return InvalidArgument(absl::StrCat(place, " was cut off, because it took more than ",
                                          limits.memory_bytes, " bytes of memory"));
    case TANDEM_JINJA_OUT_OF_TIME:
      return InvalidArgument(absl::StrCat(place, " was cut off, because it took more than ",
                                          limits.cpu_nanoseconds / 1'000'000,
                                          " ms of processor time"));
    case TANDEM_JINJA_GIVEN_UP:
      return InvalidArgument(
          absl::StrCat(place, " is not used any more, because it was cut off several times"));
    case TANDEM_JINJA_PANICKED:
      return Internal(text.str());
    default:
      return InvalidArgument(
          absl::StrCat(place, " does not fit these messages or tools: ", text.str()));
  }
}

// Skips letters from `at` on that `skipped` takes.
template <typename Predicate>
size_t Skip(std::string_view text, size_t at, Predicate skipped) {
  while (at < text.size() && skipped(text[at])) ++at;
  return at;
}

bool IsSpace(char letter) { return std::isspace(static_cast<unsigned char>(letter)) != 0; }
bool IsSign(char letter) { return letter == '-' || letter == '+'; }

// A tag {% … %} that consists of one word.
struct Tag {
  size_t word_begin;
  size_t word_end;
};

// The tag that begins at `at`, if `at` is the beginning of such a tag.
std::optional<Tag> OneWordTag(std::string_view text, size_t at) {
  if (text.substr(at, 2) != "{%") return std::nullopt;
  size_t begin = at + 2;
  if (begin < text.size() && IsSign(text[begin])) ++begin;
  begin = Skip(text, begin, IsSpace);
  const size_t end = Skip(
      text, begin, [](char letter) { return std::islower(static_cast<unsigned char>(letter)); });
  size_t close = Skip(text, end, IsSpace);
  if (close < text.size() && IsSign(text[close])) ++close;
  if (text.substr(close, 2) != "%}") return std::nullopt;
  return Tag{begin, end};
}

}  // namespace

std::string WithoutGenerationTags(std::string_view source) {
  std::string result;
  size_t copied = 0;
  for (size_t at = source.find("{%"); at != std::string_view::npos;
       at = source.find("{%", at + 2)) {
    const std::optional<Tag> tag = OneWordTag(source, at);
    if (!tag.has_value()) continue;
    const std::string_view word = source.substr(tag->word_begin, tag->word_end - tag->word_begin);
    if (word != "generation" && word != "endgeneration") continue;
    // Both kinds of block have a scope of their own.
    result.append(source, copied, tag->word_begin - copied);
    result += word == "generation" ? "with" : "endwith";
    copied = tag->word_end;
  }
  result.append(source, copied);
  return result;
}

absl::StatusOr<JinjaTemplate> JinjaTemplate::Compile(std::string_view source,
                                                     const ChatTemplateLimits& limits) {
  if (source.size() > limits.template_bytes) {
    return InvalidArgument(absl::StrCat("the chat template has ", source.size(), " bytes, at most ",
                                        limits.template_bytes, " are allowed"));
  }
  const std::string known = WithoutGenerationTags(source);
  const TandemJinjaLimits engine_limits{limits.steps, limits.depth, limits.output_bytes,
                                        limits.memory_bytes, limits.cpu_nanoseconds};
  const TandemJinjaTemplate* engine = nullptr;
  EngineText text;
  const TandemJinjaOutcome outcome =
      tandem_jinja_compile(reinterpret_cast<const uint8_t*>(known.data()), known.size(),
                           &engine_limits, FormatTime, &engine, text.get());
  if (outcome != TANDEM_JINJA_OK) {
    return InvalidArgument(
        absl::StrCat("the chat template does not compile", At(text.line()), ": ", text.str()));
  }
  return JinjaTemplate(engine, limits);
}

absl::StatusOr<std::string> JinjaTemplate::Render(const nlohmann::ordered_json& variables,
                                                  std::time_t now, bool* fits_other_values) const {
  const std::vector<uint8_t> packed = nlohmann::ordered_json::to_msgpack(variables);
  EngineText text;
  const TandemJinjaOutcome outcome =
      tandem_jinja_render(engine_.get(), packed.data(), packed.size(), now, text.get());
  if (fits_other_values != nullptr) *fits_other_values = outcome == TANDEM_JINJA_FAILED;
  if (outcome != TANDEM_JINJA_OK) return FailedRender(outcome, text, limits_);
  return text.str();
}

}  // namespace tandem
