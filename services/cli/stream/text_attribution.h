// Finds the token that each piece of streamed text came from, so that the text can be colored.
#ifndef TANDEM_SERVICES_CLI_STREAM_TEXT_ATTRIBUTION_H_
#define TANDEM_SERVICES_CLI_STREAM_TEXT_ATTRIBUTION_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "tandem/v1/generate.pb.h"

namespace tandem::cli {

struct TextSpan {
  std::string text;
  v1::TokenSource source;
};

// A message holds the tokens of a round. Its text may lag behind the tokens: a character may be
// incomplete, or a stop string may be starting. Tokens therefore wait in a queue until their text
// arrives. Each token's own text is looked up and matched with the stream from the left. A token
// that is no whole character by itself (its own text has "\xEF\xBF\xBD") has no text to match, and
// takes the text before the next token that matches. Text is never lost or added. In unclear cases,
// only the color is a best guess.
class TextAttribution {
 public:
  // Returns the text of one token. Called once for each id, and only if sources differ, because a
  // call may be a round trip to the server that is being watched.
  using TokenText = std::function<std::string(int32_t token_id)>;

  // `may_be_held_back`: the request has stop strings, so text can end in the middle of a token.
  TextAttribution(TokenText token_text, bool may_be_held_back)
      : token_text_(std::move(token_text)), may_be_held_back_(may_be_held_back) {}

  // Returns the spans of one message. Their texts concatenate to the message's text.
  std::vector<TextSpan> Add(const v1::GenerateResponse& message);

 private:
  struct Waiting {
    int32_t token_id;
    v1::TokenSource source;
    bool known = false;  // `text` is looked up
    std::string text;    // the part of its text that has not arrived yet
  };

  const std::string& TextOf(Waiting& waiting);
  bool SourcesDiffer() const;

  TokenText token_text_;
  bool may_be_held_back_;
  std::deque<Waiting> waiting_;
  v1::TokenSource last_source_ = v1::TOKEN_SOURCE_PLAIN;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_STREAM_TEXT_ATTRIBUTION_H_
