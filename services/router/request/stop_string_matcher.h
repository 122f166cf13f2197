// Finds stop strings in text that arrives in pieces, and holds back what may be the beginning of
// one.
#ifndef TANDEM_SERVICES_ROUTER_REQUEST_STOP_STRING_MATCHER_H_
#define TANDEM_SERVICES_ROUTER_REQUEST_STOP_STRING_MATCHER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// One Knuth-Morris-Pratt automaton for each stop string, stepped byte by byte: the outcome does not
// depend on how the text was cut into pieces. Whole UTF-8 characters in, whole characters out.
class StopStringMatcher {
 public:
  // PRECOND: none is empty.
  explicit StopStringMatcher(std::vector<std::string> stop_strings);

  struct Step {
    std::string text;                        // certain to be output
    std::optional<std::string> stop_string;  // the one that matched: `text` ends before it
  };
  // The match that ends first wins; of those that end together the longest. After a match nothing
  // more may be pushed. `may_stop` false: matches that end in this piece do not count, now or
  // later.
  Step Push(std::string_view piece, bool may_stop);

  // The text held back, when the output ended without a match.
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
