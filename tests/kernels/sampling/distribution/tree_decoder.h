// Decodes with trees of draft tokens over synthetic models. The shapes of the trees are random. At
// most one mistake is planted.
#ifndef TANDEM_TESTS_KERNELS_SAMPLING_DISTRIBUTION_TREE_DECODER_H_
#define TANDEM_TESTS_KERNELS_SAMPLING_DISTRIBUTION_TREE_DECODER_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/sampling/accept_reject.h"
#include "kernels/sampling/transform/sampling_params.h"
#include "kernels/sampling/transform/token_counts.h"
#include "tests/kernels/sampling/distribution/synthetic_model.h"

namespace tandem::testing {

// How the children of a node are made.
enum class TreeKind {
  kFound,               // the drafter's favorites, without q rows
  kWithReplacement,     // independent draws from one q
  kWithoutReplacement,  // each draw from what the draws before it left of q
  kTwoDrafters,         // siblings are drawn from two models in turn
  kDrawnThenFound,      // a drawn child, and favorites after it
  kCoupled,             // reproducible: the largest log q + noise
};
std::string NameOf(TreeKind kind);

enum class TreeMistake {
  kNone,
  kSortsSiblings,      // drawn siblings are sorted by q
  kDropsDuplicates,    // a drawn sibling is dropped if its token was drawn before
  kSharesUniform,      // two drafters draw with the same uniform number
  kDraftsByOwnDraw,    // the tree is dropped unless its first token is a favorite
  kRowOfSibling,       // a node is judged by the target's row after its sibling
  kForgetsRejections,  // without replacement, but each q row still has the siblings before
  kFoundBeforeDrawn,   // a found child is judged before a drawn one, by a one-hot q
  kNoisePerNode,       // reproducible: the target's noise is that of the node, not of the position
};
std::string NameOf(TreeMistake mistake);

struct TreeScenario {
  SyntheticModel target;
  std::vector<SyntheticModel> drafters;  // two for kTwoDrafters
  TreeKind kind = TreeKind::kFound;
  TreeMistake mistake = TreeMistake::kNone;
};

class TreeDecoder {
 public:
  explicit TreeDecoder(TreeScenario scenario);

  // Begins a request. `params` must outlive the calls of Round.
  void Start(const SamplingParams& params, std::span<const int32_t> prompt);
  // Decodes one round. Valid until the next call.
  const BlockVerdict& Round();
  // Tokens after the prompt.
  std::span<const int32_t> output() const { return std::span(sequence_).subspan(prompt_length_); }

  int64_t num_accepted() const { return num_accepted_; }       // over all calls
  int64_t num_from_siblings() const { return num_siblings_; }  // accepted, and not a first child

 private:
  struct Node {
    int32_t parent;
    int32_t rank;  // number among its siblings
    int32_t token_id = -1;
    bool found = false;
  };

  void ChooseShape();
  void DraftTokens();
  void DraftToken(size_t node, const std::vector<int32_t>& context);
  // Draws a node's token from left_ without the siblings before it, as the draft worker does.
  int32_t DrawWithoutSiblings(size_t index, const DrawKey& key);
  void PlantMistake();
  // Gives each found child a one-hot q row, and changes places with a drawn sibling before it.
  void PutFoundFirst();
  // The step of a judge that names the target's noise by the node.
  BlockVerdict JudgeByNoiseOfNodes();
  void Drop(size_t leaf);
  void ScoreNodes();
  // The tokens up to and including a node; -1: up to the pending token. Valid until the next call.
  const std::vector<int32_t>& ContextOf(int32_t node);
  std::span<float> DraftRow(size_t node) {
    return std::span(draft_log_probs_).subspan(node * vocabulary_size_, vocabulary_size_);
  }

  TreeScenario scenario_;
  size_t vocabulary_size_;
  const SamplingParams* params_ = nullptr;
  int32_t round_ = 0;
  size_t prompt_length_ = 0;
  std::vector<int32_t> sequence_;  // prompt and committed tokens
  TokenCounts counts_;
  std::vector<Node> nodes_;
  std::vector<float> draft_log_probs_;  // [nodes, V]
  std::vector<float> logits_;           // [nodes + 1, V]
  // Memory that is used again, because allocations would take a quarter of the time.
  std::vector<int32_t> context_;
  std::vector<int32_t> token_ids_;
  std::vector<int32_t> parents_;
  std::vector<float> draft_logits_;
  std::vector<float> left_;  // [V] the distribution that a node is drawn from
  BlockVerdict verdict_;
  int64_t num_accepted_ = 0;
  int64_t num_siblings_ = 0;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_KERNELS_SAMPLING_DISTRIBUTION_TREE_DECODER_H_
