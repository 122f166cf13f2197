#include "services/router/engine/rounds/verify.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/router/toy_round_state.h"

namespace tandem::verify_test {
namespace {

using testing::ToyRoundState;

// What drafters are charged, in tokens of plain decoding.
struct Charges : EngineObserver {
  void OnCommitted(const CommittedRound& round) override {
    rounds[{round.drafter, round.draft_model}] += round.plain_tokens;
  }
  void OnDraftingWork(Drafter drafter, const std::string& draft_model,
                      double plain_tokens) override {
    work[{drafter, draft_model}] += plain_tokens;
  }

  using ByDrafter = std::map<std::pair<Drafter, std::string>, double>;
  ByDrafter rounds;
  ByDrafter work;
};

double Sum(const Charges::ByDrafter& charges) {
  double sum = 0;
  for (const auto& [drafter, tokens] : charges) sum += tokens;
  return sum;
}

// A verifier holds decoding slots, and its costs are measured.
class ChargesTest : public ::testing::Test {
 protected:
  ChargesTest() : toy_(4, {}, &charges_) {
    toy_.AttachWorkers();
    for (uint32_t rows = 1; rows <= 16; ++rows) {
      state().draft_models.ObserveVerify({.rows = rows,
                                          .attended = 10.0 * rows,
                                          .compute_seconds = 0.01 + 0.001 * rows,
                                          .overhead_seconds = 0.001});
    }
    state().verify.emplace();
  }
  RoundState& state() { return toy_.state; }
  VerifyBatch& batch() { return *state().verify; }

  // A slot whose draft is judged, and its verdict: no token of the draft is accepted.
  VerifyBatch::Item& Add(Drafter drafter, const std::string& model, uint32_t num_drafted) {
    const uint32_t id = toy_.toy.AddDecoding(8 + 5 * num_drafted);
    Sequence& sequence = toy_.toy.sequence(id);
    if (drafter != Drafter::kModel) {
      sequence.lookups = std::make_unique<RequestLookups>(
          DrafterSet(drafter), NgramOptions(), sequence.mode(), sequence.prompt_len(), 100,
          std::vector<int32_t>(), &state().draft_models.controller().lookup_priors());
    }
    VerifyBatch::Item item;
    item.slot = id;
    item.serial = sequence.serial;
    item.begin = sequence.committed_len() - 1;
    item.end = sequence.committed_len();
    item.sample = true;
    item.num_drafted = num_drafted;
    item.proposal = toy_.toy.Draft(id, num_drafted);
    item.proposal.drafter = drafter;
    item.proposal.model = model;
    item.witness = sequence.witness();
    batch().rows += 1 + num_drafted;
    batch().attended += Attended(item.begin, 1 + num_drafted);
    v1::VerifyResult& result = *reply_.add_results();
    result.mutable_state()->set_slot(id);
    result.mutable_state()->set_code(v1::WORKER_CODE_OK);
    result.mutable_state()->set_cached_len(item.end);
    result.set_next_token_id(9);
    batch().items.push_back(std::move(item));
    return batch().items.back();
  }

  // The verifier answers. Returns the time of the round over that of plain decoding, for all slots.
  double Answer(double seconds_before) {
    double plain_attended = 0;
    for (const VerifyBatch::Item& item : batch().items) plain_attended += item.end;
    const auto num_slots = static_cast<uint32_t>(batch().items.size());
    const RoundCosts costs = state().draft_models.controller().costs().Expected();
    const double plain = costs.VerifySeconds(num_slots, plain_attended);
    const double round = costs.VerifySeconds(batch().rows, batch().attended);
    EXPECT_GT(round, 1.1 * plain);
    OnVerify(state(), reply_, 1);
    EXPECT_FALSE(state().verify.has_value()) << "the answer broke a rule";
    return num_slots * (round + seconds_before) / plain;
  }

  Charges charges_;
  ToyRoundState toy_;
  v1::VerifyReply reply_;
};

constexpr std::pair<Drafter, const char*> kCorpus = {Drafter::kRetrieval, ""};

TEST_F(ChargesTest, DraftersShareTheTimeThatTheyAddToTheRound) {
  Add(Drafter::kModel, "small", 4);
  Add(Drafter::kRetrieval, "", 3);
  Cohort& cohort = state().cohorts[0];
  cohort.propose_seconds[0] = 0.003;
  cohort.propose_models[0] = "small";
  cohort.search_seconds = 0.0005;
  const double all = Answer(0.0035);
  EXPECT_NEAR(Sum(charges_.rounds), all, 1e-9);
  EXPECT_EQ(charges_.rounds.size(), 2u);
  EXPECT_GT((charges_.rounds[{Drafter::kModel, "small"}]), charges_.rounds[kCorpus] + 0.1);
  EXPECT_TRUE(charges_.work.empty());
}

TEST_F(ChargesTest, WorkWithoutAJudgedDraftIsChargedToo) {
  Add(Drafter::kModel, "small", 4);
  Add(Drafter::kRetrieval, "", 3).serial += 1;  // canceled meanwhile
  Add(Drafter::kPrediction, "", 2);
  reply_.mutable_results(2)->mutable_state()->set_code(v1::WORKER_CODE_ABORTED);
  Cohort& cohort = state().cohorts[0];
  cohort.propose_seconds = {0.003, 0.002};
  cohort.propose_models = {"small", "unloaded"};
  const double all = Answer(0.005);
  // Two of the three slots got no token, so their plain rounds count for nobody.
  EXPECT_NEAR(Sum(charges_.rounds) + Sum(charges_.work), all - 2, 1e-9);
  EXPECT_EQ(charges_.rounds.size(), 1u);
  EXPECT_EQ(charges_.work.size(), 3u);
  EXPECT_GT(charges_.work[kCorpus], 0);
  EXPECT_GT((charges_.work[{Drafter::kPrediction, ""}]), 0);
  EXPECT_GT((charges_.work[{Drafter::kModel, "unloaded"}]), 0.1);
}

}  // namespace
}  // namespace tandem::verify_test
