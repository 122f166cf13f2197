// The heads of a simulated verifier. They are loaded while the verifier goes on.
#ifndef TANDEM_TESTS_SIMULATOR_WORKER_FAKE_HEADS_H_
#define TANDEM_TESTS_SIMULATOR_WORKER_FAKE_HEADS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "tandem/v1/worker.pb.h"
#include "tests/simulator/scenario/planted_bug.h"
#include "tests/simulator/scenario/seeded_random.h"

namespace tandem::simulator {

class FakeHeads {
 public:
  static constexpr char kFirst[] = "first";  // name of the heads that a verifier begins with
  static constexpr uint32_t kDepth = 3;      // tokens that the heads propose in a row

  // `begins_with_heads`: the verifier has heads from the start. `first_states`: what these read.
  FakeHeads(bool begins_with_heads, uint32_t first_states, PlantedBug bug)
      : begins_with_heads_(begins_with_heads),
        first_states_(first_states),
        bug_(bug),
        had_heads_(begins_with_heads),
        stored_states_(states()) {}

  // As v1.SetHeads says. Heads are loaded when they were asked for a few times. Returns why they
  // cannot be loaded; empty: nothing is wrong.
  std::string Set(const v1::SetHeads& wish, SeededRandom& random, v1::SetHeadsReply* reply);

  v1::SelfDrafter drafter() const;
  bool any() const { return !drafter().name().empty(); }
  // Whether there were heads at some time. A router that asks for a proposal may not know yet that
  // they are gone.
  bool had_heads() const { return had_heads_; }
  const std::string& name() const { return name_; }  // as of v1.SetHeads
  uint64_t version() const { return version_; }      // grows with each change
  // Which states of the target's rows the heads read, as EAGLE's do. 0: they read no rows.
  uint32_t states() const;
  // Which ones the target's passes keep: those that the last heads read that read any.
  uint32_t stored_states() const { return stored_states_; }

 private:
  bool begins_with_heads_;
  uint32_t first_states_;
  PlantedBug bug_;
  bool had_heads_;
  std::string name_;
  uint64_t version_ = 0;
  uint32_t stored_states_;
  uint64_t wish_ = 0;
  std::string wanted_;
  std::set<uint64_t> superseded_;
  std::optional<std::string> loading_;
  int num_asks_left_ = 0;  // until they are loaded
};

}  // namespace tandem::simulator

#endif  // TANDEM_TESTS_SIMULATOR_WORKER_FAKE_HEADS_H_
