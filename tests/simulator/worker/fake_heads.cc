#include "tests/simulator/worker/fake_heads.h"

#include <utility>

#include "common/rpc/protocol.h"
#include "tests/simulator/scenario/scenario.h"

namespace tandem::simulator {

std::string FakeHeads::Set(const v1::SetHeads& wish, SeededRandom& random,
                           v1::SetHeadsReply* reply) {
  *reply->mutable_self_drafter() = drafter();
  if (wish.wish() != wish_) {
    if (superseded_.contains(wish.wish())) {
      reply->set_superseded(true);
      return "";
    }
    superseded_.insert(std::exchange(wish_, wish.wish()));
    wanted_ = wish.heads();
  }
  if (loading_.has_value() && --num_asks_left_ <= 0) {
    const std::string loaded = *std::exchange(loading_, std::nullopt);
    if (loaded == wanted_ && loaded != name_) {
      if (IsBroken(loaded)) return "the heads cannot be loaded";
      name_ = loaded;
      ++version_;
      had_heads_ = had_heads_ || any();
      if (states() != 0) stored_states_ = states();
    }
  }
  if (name_ != wanted_ && !loading_.has_value()) {
    loading_ = wanted_;
    num_asks_left_ = random.Between(1, 4);
  }
  reply->set_loading(name_ != wanted_ && bug_ != PlantedBug::kHeadsLoadingForgotten);
  *reply->mutable_self_drafter() = drafter();
  return "";
}

uint32_t FakeHeads::states() const {
  if (name_.empty()) return begins_with_heads_ ? first_states_ : 0;
  if (name_ == kNoHeads) return 0;
  const auto number = static_cast<uint32_t>(name_.back() - '0');
  return number == 0 ? 0 : 1 + (number - 1) % 2;
}

v1::SelfDrafter FakeHeads::drafter() const {
  v1::SelfDrafter drafter;
  drafter.set_version(version_);
  drafter.set_is_first(name_.empty());
  if (name_ == kNoHeads || (name_.empty() && !begins_with_heads_)) return drafter;
  drafter.set_name(states() > 0 ? "eagle" : "medusa");
  drafter.set_max_depth(kDepth);
  drafter.set_heads(name_.empty() ? std::string(kFirst) : name_);
  return drafter;
}

}  // namespace tandem::simulator
