// A tree of guesses that grows level by level (Li et al. 2024, "EAGLE-2", arXiv 2406.16858, section
// 4). A guess depends on its path.
#ifndef TANDEM_COMMON_MODEL_HEADS_TREES_LEVEL_TREE_H_
#define TANDEM_COMMON_MODEL_HEADS_TREES_LEVEL_TREE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/model/heads/trees/guess_tree.h"

namespace tandem {

class LevelTree {
 public:
  struct Node {
    int32_t token_id;
    int32_t parent;      // -1: the newest token of the text
    float chance;        // P(token | its path), in (0, 1]
    double path_chance;  // the product of the chances on its path
    uint32_t level;      // 0: it has no parent
  };

  // Adds what may follow a node. `guesses` is in descending order. Guesses without a chance are
  // left out. PRECOND: nothing follows `parent` yet.
  void Add(int32_t parent, std::span<const Guess> guesses);

  const Node& node(int32_t index) const { return nodes_[static_cast<size_t>(index)]; }
  // Returns the tokens from the first one to a node. -1: none.
  std::vector<int32_t> PathTo(int32_t index) const;
  // Returns the likeliest nodes of a level, likeliest first: at most `count`, and only those whose
  // paths have at least this chance.
  std::vector<int32_t> Likeliest(uint32_t level, size_t count, double least_path_chance) const;
  // Returns the `count` nodes with the likeliest paths. A node's path is among them.
  GuessTree Best(size_t count) const;

 private:
  std::vector<Node> nodes_;  // a parent comes before its children
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_HEADS_TREES_LEVEL_TREE_H_
