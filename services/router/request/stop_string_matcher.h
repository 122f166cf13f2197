// Finds stop strings in text that arrives in pieces, and holds back text that may be the beginning
// of a stop string.
#ifndef TANDEM_SERVICES_ROUTER_REQUEST_STOP_STRING_MATCHER_H_
#define TANDEM_SERVICES_ROUTER_REQUEST_STOP_STRING_MATCHER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// Each stop string has a Knuth-Morris-Pratt automaton, which takes the text byte by byte. The
// result does not depend on how the text was cut into pieces. If the input has whole UTF-8
// characters, the output has too.
class StopStringMatcher {
 public:
  // PRECOND: no stop string is empty.
  explicit StopStringMatcher(std::vector<std::string> stop_strings);

  struct Step {
    std::string text;                        // text that is certainly output
    std::optional<std::string> stop_string;  // stop string that matched; `text` ends before it
  };
  // The match that ends first wins. If several end together, the longest wins. After a match
  // nothing more may be pushed. If `may_stop` is false, matches that end in this piece never count.
  Step Push(std::string_view piece, bool may_stop);

  // Returns the text that is held back. Called when the output ended without a match.
  std::string Finish();

 private:
  struct Automaton {
    std::string pattern;
    std::vector<size_t> fallback;  // fallback[n]: longest proper border of the first n bytes
    size_t matched = 0;            // longest prefix of `pattern` that the text ends with
  };

  std::vector<Automaton> automata_;
  std::string held_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_REQUEST_STOP_STRING_MATCHER_H_
