// Prints the text of a stream when it arrives.
#ifndef TANDEM_SERVICES_CLI_STREAM_TOKEN_PRINTER_H_
#define TANDEM_SERVICES_CLI_STREAM_TOKEN_PRINTER_H_

#include <cstdint>
#include <map>
#include <string>

#include "services/cli/client/generation_client.h"
#include "services/cli/stream/text_attribution.h"
#include "services/cli/terminal/console.h"
#include "services/cli/terminal/palette.h"
#include "tandem/v1/generate.pb.h"

namespace tandem::cli {

// The texts of single tokens, each of which the server is asked for once.
class TokenTexts {
 public:
  TokenTexts(GenerationClient& client, bool skips_special_tokens)
      : client_(client), skips_special_tokens_(skips_special_tokens) {}

  // Returns an empty text if the server fails, which affects only a color.
  std::string Of(int32_t id);

 private:
  GenerationClient& client_;
  const bool skips_special_tokens_;
  std::map<int32_t, std::string> texts_;
};

// Prints one stream. With colors, each piece of text has the color of its token's source.
class TokenPrinter {
 public:
  struct Options {
    bool color = false;
    bool may_be_held_back = false;  // the request has stop strings
  };
  TokenPrinter(const Options& options, TokenTexts& texts, Console& console);

  // Returns false when nobody reads the output any more.
  bool Print(const v1::GenerateResponse& message);

  const Palette& palette() const { return palette_; }
  // Finds the colors of another stream of the same request.
  TextAttribution NewAttribution() const;

 private:
  std::string Visible(const std::string& text) const;

  const Options options_;
  TokenTexts& texts_;
  Console& console_;
  const Palette palette_;
  TextAttribution attribution_;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_STREAM_TOKEN_PRINTER_H_
