// A suggestion for a word that was mistyped.
#ifndef TANDEM_COMMON_FLAGS_SUGGESTION_H_
#define TANDEM_COMMON_FLAGS_SUGGESTION_H_

#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// Returns the candidate that is most like `word`, if it is like enough: at most one letter in three
// is missing, added or replaced, or stands in the place of its neighbor (optimal string alignment
// distance). Of equal candidates the first counts. Empty: no candidate is like the word.
std::string ClosestWord(std::string_view word, const std::vector<std::string>& candidates);

// Returns "; did you mean X?", or an empty text if no candidate is like the word.
std::string DidYouMean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace tandem

#endif  // TANDEM_COMMON_FLAGS_SUGGESTION_H_
