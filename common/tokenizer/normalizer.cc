#include "common/tokenizer/normalizer.h"

#include <optional>
#include <utility>

#include "common/status.h"
#include "common/tokenizer/text/pattern.h"
#include "common/tokenizer/text/unicode.h"

namespace tandem {
namespace {

constexpr size_t kMaxNormalizers = 64;  // Each may cost a compiled pattern.

class UnicodeForm : public NormalizerStep {
 public:
  explicit UnicodeForm(NormalizationForm form) : form_(form) {}
  absl::Status Apply(TextPiece& piece) const override {
    piece.text = NormalizeUnicode(piece.text, form_);
    return absl::OkStatus();
  }

 private:
  NormalizationForm form_;
};

class Lowercase : public NormalizerStep {
 public:
  absl::Status Apply(TextPiece& piece) const override {
    piece.text = LowercaseUnicode(piece.text);
    return absl::OkStatus();
  }
};

class Strip : public NormalizerStep {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  absl::Status Apply(TextPiece& piece) const override {
    if (right_) piece.text.resize(piece.text.size() - TrailingWhiteSpace(piece.text));
    if (!left_) return absl::OkStatus();
    const size_t leading = LeadingWhiteSpace(piece.text);
    piece.text.erase(0, leading);
    piece.at_origin = piece.at_origin && leading == 0;
    return absl::OkStatus();
  }

 private:
  bool left_;
  bool right_;
};

class Prepend : public NormalizerStep {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  absl::Status Apply(TextPiece& piece) const override {
    if (!piece.text.empty()) piece.text.insert(0, prefix_);
    return absl::OkStatus();
  }

 private:
  std::string prefix_;
};

class Replace : public NormalizerStep {
 public:
  Replace(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  absl::Status Apply(TextPiece& piece) const override {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<Pattern::Match> matches,
                            pattern_.FindAll(piece.text));
    std::string result;
    size_t copied = 0;
    for (const Pattern::Match& match : matches) {
      result.append(piece.text, copied, match.start - copied);
      result += content_;
      copied = match.end;
      if (result.empty() && copied > 0) piece.at_origin = false;
    }
    result.append(piece.text, copied);
    piece.text = std::move(result);
    return absl::OkStatus();
  }

 private:
  Pattern pattern_;
  std::string content_;
};

std::optional<NormalizationForm> FormOf(const std::string& type) {
  if (type == "NFC") return NormalizationForm::kNfc;
  if (type == "NFD") return NormalizationForm::kNfd;
  if (type == "NFKC") return NormalizationForm::kNfkc;
  if (type == "NFKD") return NormalizationForm::kNfkd;
  return std::nullopt;
}

}  // namespace

absl::StatusOr<Normalizer> Normalizer::FromJson(const JsonField& field) {
  Normalizer normalizer;
  if (field.present()) TANDEM_RETURN_IF_ERROR(normalizer.AddSteps(field));
  return normalizer;
}

absl::Status Normalizer::AddSteps(const JsonField& field) {
  if (steps_.size() >= kMaxNormalizers) {
    return field.Error("more than " + std::to_string(kMaxNormalizers) + " steps");
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string type, field.Type());
  if (type == "Sequence") {
    const JsonField parts = field.Member("normalizers");
    TANDEM_RETURN_IF_ERROR(parts.CheckArray());
    for (size_t i = 0; i < parts.size(); ++i) TANDEM_RETURN_IF_ERROR(AddSteps(parts.Element(i)));
    return absl::OkStatus();
  }
  if (const std::optional<NormalizationForm> form = FormOf(type)) {
    steps_.push_back(std::make_unique<UnicodeForm>(*form));
    return absl::OkStatus();
  }
  if (type == "Lowercase") {
    steps_.push_back(std::make_unique<Lowercase>());
    return absl::OkStatus();
  }
  if (type == "Strip") {
    TANDEM_ASSIGN_OR_RETURN(const bool left, field.Member("strip_left").Bool(true));
    TANDEM_ASSIGN_OR_RETURN(const bool right, field.Member("strip_right").Bool(true));
    steps_.push_back(std::make_unique<Strip>(left, right));
    return absl::OkStatus();
  }
  if (type == "Prepend") {
    TANDEM_ASSIGN_OR_RETURN(std::string prefix, field.Member("prepend").String());
    steps_.push_back(std::make_unique<Prepend>(std::move(prefix)));
    return absl::OkStatus();
  }
  if (type == "Replace") {
    TANDEM_ASSIGN_OR_RETURN(Pattern pattern, Pattern::FromJson(field.Member("pattern")));
    TANDEM_ASSIGN_OR_RETURN(std::string content, field.Member("content").String());
    steps_.push_back(std::make_unique<Replace>(std::move(pattern), std::move(content)));
    return absl::OkStatus();
  }
  return field.Member("type").Error(Quoted(type) +
                                    " is not supported (want NFC, NFD, NFKC, NFKD, Lowercase, "
                                    "Strip, Prepend, Replace or Sequence)");
}

absl::Status Normalizer::Apply(TextPiece& piece) const {
  for (const auto& step : steps_) TANDEM_RETURN_IF_ERROR(step->Apply(piece));
  return absl::OkStatus();
}

}  // namespace tandem
