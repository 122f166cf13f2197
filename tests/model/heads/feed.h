// Feeding of a target in tests of what drafts beside it.
#ifndef TANDEM_TESTS_MODEL_HEADS_FEED_H_
#define TANDEM_TESTS_MODEL_HEADS_FEED_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "common/model/kv/kv_cache.h"
#include "common/model/language_model.h"

namespace tandem::testing {

// Feeds tokens after those that the cache has. Returns the logits after the last one.
inline std::vector<float> Feed(LanguageModel& model, KvCache& cache,
                               std::span<const int32_t> token_ids) {
  const ForwardItem item = {
      .cache = &cache, .token_ids = token_ids, .parents = {}, .num_logits = 1};
  const auto logits = model.Forward({&item, 1});
  EXPECT_TRUE(logits.ok()) << logits.status();
  return {logits->row(0), logits->row(0) + model.description().vocabulary_size};
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_MODEL_HEADS_FEED_H_
