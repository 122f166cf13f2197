// Tells which token each piece of streamed text came from, so that it can be coloured.
#ifndef TANDEM_SERVICES_CLI_COMMANDS_TEXT_ATTRIBUTION_H_
#define TANDEM_SERVICES_CLI_COMMANDS_TEXT_ATTRIBUTION_H_

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

// A message holds the tokens of a round and text that may lag behind them (a character still
// incomplete, a stop string that may be starting), so tokens wait in a queue until their text has
// come. Each token's own text is looked up and matched against the stream from the left. A token
// that alone is no whole character ("\xEF\xBF\xBD" in its own text) has no text to match: it takes
// what stands before the next token that matches. No text is ever lost or invented; only its colour
// is a best guess in such places.
class TextAttribution {
 public:
  // Text of a token by itself. Called once for an id, and only where sources differ, because each
  // call may be a round trip to the server that is being watched.
  using TokenText = std::function<std::string(int32_t token_id)>;

  // `may_be_held_back`: the request has stop strings, so that text can end in the middle of a
  // token.
  TextAttribution(TokenText token_text, bool may_be_held_back)
      : token_text_(std::move(token_text)), may_be_held_back_(may_be_held_back) {}

  // The spans of one message; their texts concatenate to its text.
  std::vector<TextSpan> Add(const v1::GenerateResponse& message);

 private:
  struct Waiting {
    int32_t token_id;
    v1::TokenSource source;
    bool known = false;  // `text` is looked up
    std::string text;    // what of it has not come yet
  };

  const std::string& TextOf(Waiting& waiting);
  bool SourcesDiffer() const;

  TokenText token_text_;
  bool may_be_held_back_;
  std::deque<Waiting> waiting_;
  v1::TokenSource last_source_ = v1::TOKEN_SOURCE_PLAIN;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_COMMANDS_TEXT_ATTRIBUTION_H_
