#include "tests/kernels/sampling/distribution/tree_decoder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/token_hash.h"
#include "kernels/sampling/draw.h"
#include "kernels/sampling/transform/transform.h"

namespace tandem::testing {
namespace {

constexpr float kLogOfZero = -std::numeric_limits<float>::infinity();
constexpr uint64_t kMostNodes = 6;
constexpr uint8_t kFirstDrafter = 1;

// Takes a token out of a distribution. Returns false if nothing else is in it.
bool TakeOut(int32_t token_id, std::span<float> log_probs) {
  const double left = 1 - std::exp(static_cast<double>(log_probs[token_id]));
  if (left < 1e-6) return false;
  log_probs[token_id] = kLogOfZero;
  const auto change = static_cast<float>(std::log(left));
  for (float& log_prob : log_probs) log_prob -= change;
  return true;
}

}  // namespace

std::string NameOf(TreeKind kind) {
  constexpr const char* kNames[] = {"Found",       "WithReplacement", "WithoutReplacement",
                                    "TwoDrafters", "DrawnThenFound",  "Coupled"};
  return kNames[static_cast<size_t>(kind)];
}

std::string NameOf(TreeMistake mistake) {
  constexpr const char* kNames[] = {
      "None",         "SortsSiblings",     "DropsDuplicates",  "SharesUniform", "DraftsByOwnDraw",
      "RowOfSibling", "ForgetsRejections", "FoundBeforeDrawn", "NoisePerNode"};
  return kNames[static_cast<size_t>(mistake)];
}

TreeDecoder::TreeDecoder(TreeScenario scenario)
    : scenario_(std::move(scenario)), vocabulary_size_(scenario_.target.vocabulary_size()) {}

void TreeDecoder::Start(const SamplingParams& params, std::span<const int32_t> prompt) {
  params_ = &params;
  round_ = 0;
  sequence_.assign(prompt.begin(), prompt.end());
  prompt_length_ = sequence_.size();
  counts_.Clear();
  for (const int32_t id : prompt) counts_.Add(id, /*is_output=*/false);
}

const std::vector<int32_t>& TreeDecoder::ContextOf(int32_t node) {
  size_t depth = 0;
  for (int32_t at = node; at >= 0; at = nodes_[at].parent) ++depth;
  context_.assign(sequence_.begin(), sequence_.end());
  context_.resize(sequence_.size() + depth);
  for (auto out = context_.rbegin(); node >= 0; node = nodes_[node].parent) {
    *out++ = nodes_[node].token_id;
  }
  return context_;
}

// The shape depends on the request and the round alone.
void TreeDecoder::ChooseShape() {
  uint64_t random = ExtendTokenHash(params_->seed, round_++);
  nodes_.resize(1 + random % kMostNodes);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    random = ExtendTokenHash(random, static_cast<int32_t>(i));
    // Half of the nodes follow the pending token, so that many have siblings.
    const auto any = static_cast<int32_t>((random >> 1) % (i + 1)) - 1;
    nodes_[i] = {.parent = random % 2 == 0 ? -1 : any, .rank = 0};
    for (size_t j = 0; j < i; ++j) nodes_[i].rank += nodes_[j].parent == nodes_[i].parent ? 1 : 0;
    nodes_[i].found = scenario_.kind == TreeKind::kFound;
  }
  if (scenario_.kind != TreeKind::kDrawnThenFound) return;
  for (size_t i = nodes_.size() / 2; i < nodes_.size(); ++i) nodes_[i].found = true;
}

void TreeDecoder::DraftToken(size_t index, const std::vector<int32_t>& context) {
  Node& node = nodes_[index];
  const std::span<float> row = DraftRow(index);
  const bool two = scenario_.kind == TreeKind::kTwoDrafters;
  const auto drafter = static_cast<uint8_t>(two ? node.rank % 2 : 0);
  draft_logits_.resize(vocabulary_size_);
  scenario_.drafters[drafter].Logits(context, draft_logits_);
  for (size_t i = sequence_.size(); i < context.size(); ++i) counts_.Add(context[i], true);
  const auto num_output_tokens = static_cast<int32_t>(context.size() - prompt_length_);
  AdjustLogits(draft_logits_, *params_, counts_, num_output_tokens, row);
  for (size_t i = sequence_.size(); i < context.size(); ++i) counts_.Remove(context[i], true);
  LogProbs(row, *params_, row);
  DrawKey key{.seed = params_->seed,
              .position = context.size(),
              .drafter = static_cast<uint8_t>(kFirstDrafter + drafter),
              .sibling = static_cast<uint8_t>(node.rank)};
  if (scenario_.mistake == TreeMistake::kSharesUniform) key.drafter = key.sibling = 0;
  left_.assign(row.begin(), row.end());
  if (scenario_.kind == TreeKind::kCoupled) {
    // Siblings share the noise of their position.
    key = {.seed = params_->seed, .position = context.size(), .sibling = key.sibling};
    node.token_id = node.rank == 0 ? DrawCoupled(left_, key) : DrawWithoutSiblings(index, key);
  } else if (node.found) {
    for (size_t i = 0; i < index; ++i) {
      if (nodes_[i].parent == node.parent && left_[nodes_[i].token_id] != kLogOfZero) {
        TakeOut(nodes_[i].token_id, left_);
      }
    }
    node.token_id = Argmax(left_);
  } else {
    node.token_id = scenario_.kind == TreeKind::kWithoutReplacement && node.rank > 0
                        ? DrawWithoutSiblings(index, key)
                        : DrawFromLogProbs(left_, Uniform(key, DrawPurpose::kPropose));
    if (scenario_.mistake != TreeMistake::kForgetsRejections) {
      std::copy(left_.begin(), left_.end(), row.begin());
    }
  }
}

int32_t TreeDecoder::DrawWithoutSiblings(size_t index, const DrawKey& key) {
  DraftDraw draw = {.drawn_from = left_};
  for (size_t i = 0; i < index; ++i) {
    if (nodes_[i].parent != nodes_[index].parent) continue;
    draw.token_id = nodes_[i].token_id;
    draw = DrawSibling(draw, *params_, key, left_);
  }
  return draw.token_id;
}

void TreeDecoder::DraftTokens() {
  draft_log_probs_.assign(nodes_.size() * vocabulary_size_, 0);
  for (size_t i = 0; i < nodes_.size(); ++i) DraftToken(i, ContextOf(nodes_[i].parent));
}

void TreeDecoder::Drop(size_t leaf) {
  nodes_.erase(nodes_.begin() + static_cast<ptrdiff_t>(leaf));
  for (Node& node : nodes_) node.parent -= node.parent > static_cast<int32_t>(leaf) ? 1 : 0;
  const auto row = draft_log_probs_.begin() + static_cast<ptrdiff_t>(leaf * vocabulary_size_);
  draft_log_probs_.erase(row, row + static_cast<ptrdiff_t>(vocabulary_size_));
}

void TreeDecoder::PlantMistake() {
  const auto is_leaf = [&](size_t node) {
    return std::none_of(nodes_.begin(), nodes_.end(), [&](const Node& other) {
      return other.parent == static_cast<int32_t>(node);
    });
  };
  for (size_t a = 0; a < nodes_.size(); ++a) {
    for (size_t b = a + 1; b < nodes_.size(); ++b) {
      if (nodes_[a].parent != nodes_[b].parent || !is_leaf(a) || !is_leaf(b)) continue;
      if (scenario_.mistake == TreeMistake::kSortsSiblings &&
          DraftRow(a)[nodes_[a].token_id] < DraftRow(b)[nodes_[b].token_id]) {
        std::swap(nodes_[a].token_id, nodes_[b].token_id);
      }
      if (scenario_.mistake == TreeMistake::kDropsDuplicates &&
          nodes_[a].token_id == nodes_[b].token_id) {
        Drop(b--);
      }
    }
  }
  if (scenario_.mistake == TreeMistake::kFoundBeforeDrawn) PutFoundFirst();
  if (scenario_.mistake == TreeMistake::kDraftsByOwnDraw &&
      nodes_[0].token_id >= static_cast<int32_t>(vocabulary_size_ / 2)) {
    nodes_.clear();
  }
}

void TreeDecoder::PutFoundFirst() {
  const auto is_leaf = [&](size_t node) {
    return std::none_of(nodes_.begin(), nodes_.end(), [&](const Node& other) {
      return other.parent == static_cast<int32_t>(node);
    });
  };
  for (size_t node = 0; node < nodes_.size(); ++node) {
    if (!nodes_[node].found) continue;
    const std::span<float> row = DraftRow(node);
    std::fill(row.begin(), row.end(), kLogOfZero);
    row[nodes_[node].token_id] = 0;
  }
  for (size_t a = 0; a < nodes_.size(); ++a) {
    for (size_t b = a + 1; b < nodes_.size(); ++b) {
      if (nodes_[a].parent != nodes_[b].parent || !is_leaf(a) || !is_leaf(b)) continue;
      if (nodes_[a].found || !nodes_[b].found) continue;
      std::swap(nodes_[a].token_id, nodes_[b].token_id);
      std::swap(nodes_[a].found, nodes_[b].found);
      std::swap_ranges(DraftRow(a).begin(), DraftRow(a).end(), DraftRow(b).begin());
    }
  }
  for (Node& node : nodes_) node.found = false;  // all have rows now
}

BlockVerdict TreeDecoder::JudgeByNoiseOfNodes() {
  BlockVerdict verdict;
  int32_t node = -1;
  left_.resize(vocabulary_size_);
  while (true) {
    const size_t depth = verdict.path.size();
    AdjustLogits(std::span(logits_).subspan(static_cast<size_t>(node + 1) * vocabulary_size_,
                                            vocabulary_size_),
                 *params_, counts_, static_cast<int32_t>(output().size() + depth), left_);
    LogProbs(left_, *params_, left_);
    // DrawCoupled leaves the sibling of the key out, so that the seed has to name the node.
    const uint64_t seed = node < 0 ? params_->seed : ExtendTokenHash(params_->seed, node);
    verdict.next_token_id =
        DrawCoupled(left_, {.seed = seed, .position = sequence_.size() + depth});
    const auto child = std::find_if(nodes_.begin(), nodes_.end(), [&](const Node& other) {
      return other.parent == node && other.token_id == verdict.next_token_id;
    });
    if (child == nodes_.end()) break;
    node = static_cast<int32_t>(child - nodes_.begin());
    verdict.path.push_back(node);
    counts_.Add(child->token_id, /*is_output=*/true);
  }
  for (const int32_t id : verdict.path) counts_.Remove(nodes_[id].token_id, /*is_output=*/true);
  return verdict;
}

void TreeDecoder::ScoreNodes() {
  logits_.resize((nodes_.size() + 1) * vocabulary_size_);
  const auto row = [&](size_t node) {
    return std::span(logits_).subspan(node * vocabulary_size_, vocabulary_size_);
  };
  for (size_t i = 0; i <= nodes_.size(); ++i) {
    int32_t node = static_cast<int32_t>(i) - 1;
    if (scenario_.mistake == TreeMistake::kRowOfSibling && node >= 0 && nodes_[node].rank > 0) {
      for (int32_t other = 0; other < node; ++other) {
        if (nodes_[other].parent == nodes_[node].parent) {
          node = other;
          break;
        }
      }
    }
    scenario_.target.Logits(ContextOf(node), row(i));
  }
}

const BlockVerdict& TreeDecoder::Round() {
  ChooseShape();
  DraftTokens();
  PlantMistake();
  ScoreNodes();
  token_ids_.clear();
  parents_.clear();
  size_t num_found = 0;
  for (const Node& node : nodes_) {
    token_ids_.push_back(node.token_id);
    parents_.push_back(node.parent);
    num_found += node.found ? 1 : 0;
  }
  const bool has_rows = num_found < nodes_.size() && !params_->reproducible;
  AcceptRejectArgs args;
  args.target_logits = logits_.data();
  args.logits_stride = vocabulary_size_;
  args.vocabulary_size = vocabulary_size_;
  args.draft_token_ids = token_ids_;
  args.draft_parents = parents_;
  args.draft_log_probs = has_rows ? draft_log_probs_.data() : nullptr;
  args.num_found = has_rows ? num_found : 0;
  args.params = params_;
  args.counts = &counts_;
  args.num_output_tokens = static_cast<int32_t>(output().size());
  args.position = sequence_.size();
  args.drafter = kFirstDrafter;
  const bool by_nodes = scenario_.mistake == TreeMistake::kNoisePerNode;
  verdict_ = by_nodes ? JudgeByNoiseOfNodes() : AcceptReject(args);
  for (size_t i = 0; i <= verdict_.path.size(); ++i) {
    const bool accepted = i < verdict_.path.size();
    const int32_t token_id = accepted ? token_ids_[verdict_.path[i]] : verdict_.next_token_id;
    if (accepted && nodes_[verdict_.path[i]].rank > 0) ++num_siblings_;
    sequence_.push_back(token_id);
    counts_.Add(token_id, /*is_output=*/true);
  }
  num_accepted_ += verdict_.num_accepted();
  return verdict_;
}

}  // namespace tandem::testing
