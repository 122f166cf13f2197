#include "services/cli/stream/text_attribution.h"

#include <utility>

namespace tandem::cli {

namespace {

constexpr char kReplacementCharacter[] = "\xEF\xBF\xBD";

bool IsWholeText(const std::string& text) {
  return !text.empty() && text.find(kReplacementCharacter) == std::string::npos;
}

void Append(std::vector<TextSpan>& spans, std::string text, v1::TokenSource source) {
  if (text.empty()) return;
  if (!spans.empty() && spans.back().source == source) {
    spans.back().text += text;
  } else {
    spans.push_back({std::move(text), source});
  }
}

}  // namespace

const std::string& TextAttribution::TextOf(Waiting& waiting) {
  if (!waiting.known) {
    waiting.text = token_text_(waiting.token_id);
    waiting.known = true;
  }
  return waiting.text;
}

bool TextAttribution::SourcesDiffer() const {
  for (const Waiting& waiting : waiting_) {
    if (waiting.source != waiting_.front().source) return true;
  }
  return false;
}

std::vector<TextSpan> TextAttribution::Add(const v1::GenerateResponse& message) {
  for (int i = 0; i < message.token_ids_size(); ++i) {
    const v1::TokenSource source =
        i < message.sources_size() ? message.sources(i) : v1::TOKEN_SOURCE_UNSPECIFIED;
    waiting_.push_back({message.token_ids(i), source, false, ""});
  }
  std::vector<TextSpan> spans;
  const std::string& text = message.text();
  if (text.empty()) return spans;

  if (!may_be_held_back_ && !SourcesDiffer()) {
    if (!waiting_.empty()) last_source_ = waiting_.front().source;
    waiting_.clear();
    Append(spans, text, last_source_);
    return spans;
  }

  size_t position = 0;
  while (position < text.size()) {
    // Finds the first waiting token whose text occurs at or after `position`. The tokens before it
    // have no text of their own.
    size_t found = std::string::npos;
    size_t token = 0;
    for (; token < waiting_.size(); ++token) {
      const std::string& token_text = TextOf(waiting_[token]);
      if (!IsWholeText(token_text)) continue;
      const std::string rest = text.substr(position);
      if (token_text.size() > rest.size() && token_text.compare(0, rest.size(), rest) == 0) {
        found = position;  // the end of this token's text is still held back
        break;
      }
      found = text.find(token_text, position);
      if (found != std::string::npos) break;
    }
    if (found == std::string::npos) {
      // No token matches, so the rest belongs to the newest token.
      if (!waiting_.empty()) last_source_ = waiting_.back().source;
      waiting_.clear();
      Append(spans, text.substr(position), last_source_);
      break;
    }
    if (token > 0) last_source_ = waiting_[token - 1].source;
    // A token that was decoded alone may have lost its leading space (SentencePiece). The space
    // before it is then its own.
    const bool own_space = token == 0 && found == position + 1 && text[position] == ' ';
    if (own_space) last_source_ = waiting_.front().source;
    Append(spans, text.substr(position, found - position), last_source_);
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(token));
    Waiting& current = waiting_.front();
    const size_t length = std::min(current.text.size(), text.size() - found);
    last_source_ = current.source;
    Append(spans, text.substr(found, length), last_source_);
    position = found + length;
    if (length < current.text.size()) {
      current.text.erase(0, length);
    } else {
      waiting_.pop_front();
    }
  }
  return spans;
}

}  // namespace tandem::cli
