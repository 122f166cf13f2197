#include "services/router/request/stop_string_matcher.h"

#include <algorithm>
#include <utility>

namespace tandem {

StopStringMatcher::StopStringMatcher(std::vector<std::string> stop_strings) {
  for (std::string& pattern : stop_strings) {
    std::vector<size_t> fallback(pattern.size() + 1, 0);
    for (size_t n = 2; n <= pattern.size(); ++n) {
      size_t border = fallback[n - 1];
      while (border > 0 && pattern[border] != pattern[n - 1]) border = fallback[border];
      fallback[n] = pattern[border] == pattern[n - 1] ? border + 1 : 0;
    }
    automata_.push_back({std::move(pattern), std::move(fallback), 0});
  }
}

StopStringMatcher::Step StopStringMatcher::Push(std::string_view piece, bool may_stop) {
  Step step;
  for (char byte : piece) {
    held_.push_back(byte);
    const Automaton* match = nullptr;
    for (Automaton& automaton : automata_) {
      size_t& matched = automaton.matched;
      while (matched > 0 && automaton.pattern[matched] != byte) {
        matched = automaton.fallback[matched];
      }
      if (automaton.pattern[matched] == byte) ++matched;
      if (matched < automaton.pattern.size()) continue;
      if (may_stop && (match == nullptr || match->pattern.size() < automaton.pattern.size())) {
        match = &automaton;
      }
      if (!may_stop) matched = automaton.fallback[matched];
    }
    if (match != nullptr) {
      step.text = held_.substr(0, held_.size() - match->pattern.size());
      step.stop_string = match->pattern;
      held_.clear();
      return step;
    }
  }
  size_t undecided = 0;
  for (const Automaton& automaton : automata_) undecided = std::max(undecided, automaton.matched);
  step.text = held_.substr(0, held_.size() - undecided);
  held_.erase(0, held_.size() - undecided);
  return step;
}

std::string StopStringMatcher::Finish() { return std::exchange(held_, {}); }

}  // namespace tandem
