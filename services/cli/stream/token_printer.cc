#include "services/cli/stream/token_printer.h"

namespace tandem::cli {

std::string TokenTexts::Of(int32_t id) {
  const auto known = texts_.find(id);
  if (known != texts_.end()) return known->second;
  const auto text = client_.Detokenize({id}, skips_special_tokens_);
  return texts_[id] = text.ok() ? *text : "";
}

TokenPrinter::TokenPrinter(const Options& options, TokenTexts& texts, Console& console)
    : options_(options),
      texts_(texts),
      console_(console),
      palette_(options.color),
      attribution_(NewAttribution()) {}

bool TokenPrinter::Print(const v1::GenerateResponse& message) {
  if (palette_.color()) {
    for (const TextSpan& span : attribution_.Add(message)) {
      console_.out << palette_.Source(span.source, Visible(span.text));
    }
  } else {
    console_.out << Visible(message.text());
  }
  console_.out.flush();
  return console_.out.good();
}

TextAttribution TokenPrinter::NewAttribution() const {
  return {[texts = &texts_](int32_t id) { return texts->Of(id); }, options_.may_be_held_back};
}

std::string TokenPrinter::Visible(const std::string& text) const {
  return console_.out_is_terminal ? VisibleText(text) : text;
}

}  // namespace tandem::cli
