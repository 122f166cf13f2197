#include "common/model/heads/trees/level_tree.h"

#include <algorithm>
#include <numeric>

namespace tandem {

void LevelTree::Add(int32_t parent, std::span<const Guess> guesses) {
  const double path = parent < 0 ? 1.0 : node(parent).path_chance;
  const uint32_t level = parent < 0 ? 0 : node(parent).level + 1;
  for (const Guess& guess : guesses) {
    if (!(guess.chance > 0)) continue;
    nodes_.push_back({guess.token_id, parent, guess.chance, path * guess.chance, level});
  }
}

std::vector<int32_t> LevelTree::PathTo(int32_t index) const {
  std::vector<int32_t> path;
  for (; index >= 0; index = node(index).parent) path.push_back(node(index).token_id);
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<int32_t> LevelTree::Likeliest(uint32_t level, size_t count,
                                          double least_path_chance) const {
  std::vector<int32_t> found;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].level == level && nodes_[i].path_chance >= least_path_chance) {
      found.push_back(static_cast<int32_t>(i));
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [&](int32_t a, int32_t b) { return node(a).path_chance > node(b).path_chance; });
  if (found.size() > count) found.resize(count);
  return found;
}

GuessTree LevelTree::Best(size_t count) const {
  // A path is at most as likely as a part of it, and a parent comes first among equals.
  std::vector<int32_t> order(nodes_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return node(a).path_chance > node(b).path_chance; });
  order.resize(std::min(order.size(), count));
  std::vector<int32_t> place(nodes_.size(), -1);
  GuessTree tree;
  for (const int32_t index : order) {
    const Node& taken = node(index);
    place[static_cast<size_t>(index)] = static_cast<int32_t>(tree.token_ids.size());
    tree.token_ids.push_back(taken.token_id);
    tree.parents.push_back(taken.parent < 0 ? -1 : place[static_cast<size_t>(taken.parent)]);
    tree.chances.push_back(taken.chance);
  }
  return tree;
}

}  // namespace tandem
