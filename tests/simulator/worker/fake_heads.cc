#include "tests/simulator/worker/fake_heads.h"

#include <utility>

#include "common/rpc/protocol.h"
#include "tests/simulator/scenario/scenario.h"

namespace tandem::simulator {

std::string FakeHeads::Set(const std::string& name, SeededRandom& random,
                           v1::SetHeadsReply* reply) {
  if (loading_.has_value() && --num_asks_left_ <= 0) {
    const std::string loaded = *std::exchange(loading_, std::nullopt);
    if (IsBroken(loaded)) {
      if (loaded == name) return "the heads cannot be loaded";
    } else {
      name_ = loaded;
      ++version_;
      had_heads_ = had_heads_ || any();
    }
  }
  if (name_ != name && !loading_.has_value()) {
    loading_ = name;
    num_asks_left_ = random.Between(1, 4);
  }
  reply->set_loading(name_ != name && bug_ != PlantedBug::kHeadsLoadingForgotten);
  *reply->mutable_self_drafter() = drafter();
  return "";
}

v1::SelfDrafter FakeHeads::drafter() const {
  v1::SelfDrafter drafter;
  if (name_ == kNoHeads || (name_.empty() && !begins_with_heads_)) return drafter;
  drafter.set_name(name_.ends_with("1") ? "eagle" : "medusa");
  drafter.set_max_depth(kDepth);
  drafter.set_heads(name_.empty() ? std::string(kFirst) : name_);
  return drafter;
}

}  // namespace tandem::simulator
