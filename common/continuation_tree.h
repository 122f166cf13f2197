// Merges texts that may follow one context into a tree of their tokens.
#ifndef TANDEM_COMMON_CONTINUATION_TREE_H_
#define TANDEM_COMMON_CONTINUATION_TREE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tandem {

// A text that may follow. A token below 0 ends it.
struct Continuation {
  std::vector<int32_t> token_ids;
  uint32_t weight = 1;  // how much it counts beside others
};

// A tree of tokens: parents[i] < i is the token before token i, and -1 stands for the context.
// Siblings are in the order of their weights.
struct ContinuationTree {
  std::vector<int32_t> token_ids;
  std::vector<int32_t> parents;
};

struct ContinuationLimits {
  size_t max_depth = 0;
  size_t max_nodes = 0;        // 0: a chain
  double least_share = 0;      // smallest share of all weights that a token needs
  int32_t end_id = INT32_MAX;  // token ids from here on end a text too
};

// Adds the heaviest token that may follow, again and again. The weight of a token is that of the
// texts that agree with its path. Of equal weights, the token whose text comes first goes first. A
// chain adds the heaviest token after the last one.
inline ContinuationTree MergeContinuations(std::span<const Continuation> texts,
                                           const ContinuationLimits& limits) {
  struct Node {
    int32_t token_id;
    int32_t parent;  // index in the tree
    size_t depth;
    uint64_t weight;
    std::vector<size_t> texts;  // those that agree
  };
  std::vector<Node> open;  // in the order in which they were found
  const auto add_children = [&](const std::vector<size_t>& agreeing, int32_t parent, size_t depth) {
    const size_t first = open.size();
    for (const size_t text : agreeing) {
      const std::vector<int32_t>& token_ids = texts[text].token_ids;
      if (depth >= std::min(token_ids.size(), limits.max_depth)) continue;
      const int32_t token_id = token_ids[depth];
      if (token_id < 0 || token_id >= limits.end_id) continue;
      auto child = open.begin() + static_cast<ptrdiff_t>(first);
      while (child != open.end() && child->token_id != token_id) ++child;
      if (child == open.end()) child = open.insert(child, {token_id, parent, depth, 0, {}});
      child->weight += texts[text].weight;
      child->texts.push_back(text);
    }
  };
  double total = 0;
  std::vector<size_t> all;
  for (size_t i = 0; i < texts.size(); ++i) {
    all.push_back(i);
    total += texts[i].weight;
  }
  ContinuationTree tree;
  add_children(all, -1, 0);
  const size_t most = limits.max_nodes > 0 ? limits.max_nodes : limits.max_depth;
  while (!open.empty() && tree.token_ids.size() < most) {
    const auto best = std::max_element(open.begin(), open.end(), [](const Node& a, const Node& b) {
      return a.weight < b.weight;  // the first of equals
    });
    if (static_cast<double>(best->weight) < limits.least_share * total) break;
    const Node node = std::move(*best);
    if (limits.max_nodes > 0) {
      open.erase(best);
    } else {
      open.clear();
    }
    const auto index = static_cast<int32_t>(tree.token_ids.size());
    tree.token_ids.push_back(node.token_id);
    tree.parents.push_back(node.parent);
    add_children(node.texts, index, node.depth + 1);
  }
  return tree;
}

}  // namespace tandem

#endif  // TANDEM_COMMON_CONTINUATION_TREE_H_
