#include "proto/draft_tree.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace tandem {
namespace {

int32_t ParentOf(std::span<const int32_t> parents, size_t token) {
  return parents.empty() ? static_cast<int32_t>(token) - 1 : parents[token];
}

}  // namespace

bool IsChain(std::span<const int32_t> parents) {
  for (size_t i = 0; i < parents.size(); ++i) {
    if (parents[i] != static_cast<int32_t>(i) - 1) return false;
  }
  return true;
}

uint32_t DepthOfDraft(std::span<const int32_t> parents, size_t num_tokens) {
  if (parents.empty()) return static_cast<uint32_t>(num_tokens);
  std::vector<uint32_t> depths;
  uint32_t deepest = 0;
  for (const int32_t parent : parents) {
    depths.push_back(parent < 0 ? 1 : depths[static_cast<size_t>(parent)] + 1);
    deepest = std::max(deepest, depths.back());
  }
  return deepest;
}

absl::Status CheckDraft(std::span<const int32_t> parents, size_t num_tokens,
                        const DraftLimits& limits) {
  if (!parents.empty() && parents.size() != num_tokens) {
    return InvalidArgument(
        absl::StrCat("parents: ", parents.size(), " for ", num_tokens, " draft tokens"));
  }
  for (size_t i = 0; i < parents.size(); ++i) {
    if (parents[i] >= -1 && parents[i] < static_cast<int32_t>(i)) continue;
    return InvalidArgument(
        absl::StrCat("parents[", i, "]: got ", parents[i], ", want an earlier draft token or -1"));
  }
  const uint32_t most = parents.empty() ? limits.max_depth : limits.max_nodes;
  if (num_tokens > most) {
    return InvalidArgument(absl::StrCat("draft_token_ids: ", num_tokens, " of a ",
                                        parents.empty() ? "chain" : "tree",
                                        ", the session was attached with at most ", most));
  }
  if (const uint32_t depth = DepthOfDraft(parents, num_tokens); depth > limits.max_depth) {
    return InvalidArgument(absl::StrCat("parents: a path of ", depth,
                                        " draft tokens, the session was attached with at most ",
                                        limits.max_depth));
  }
  return absl::OkStatus();
}

bool IsPathOfDraft(std::span<const int32_t> parents, size_t num_tokens,
                   std::span<const uint32_t> path) {
  int64_t last = -1;
  for (const uint32_t token : path) {
    if (token >= num_tokens || ParentOf(parents, token) != last) return false;
    last = token;
  }
  return true;
}

}  // namespace tandem
