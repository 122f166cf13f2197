#include "services/router/watch/router_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "services/router/fleet/fleet.h"
#include "tests/metrics/exposition.h"
#include "tests/router/engine_driver.h"

namespace tandem {
namespace {

using testing::CallResult;
using testing::EngineDriver;
using testing::Exposition;
using testing::ToyModel;
using testing::ToyOptions;

constexpr char kDraft[] = R"({draft_model="toy-draft",drafter="model",model="toy"})";

std::vector<int32_t> Prompt(size_t length) {
  std::vector<int32_t> prompt(length);
  for (size_t i = 0; i < length; ++i) prompt[i] = static_cast<int32_t>(1 + i * 7 % 50);
  return prompt;
}

EngineOptions Options(std::optional<uint32_t> draft_length = 4) {
  EngineOptions options;
  options.draft_length = draft_length;
  options.max_lost_rounds = 1000;
  return options;
}

struct Served {
  explicit Served(const EngineOptions& options = Options(), const ToyModel& model = {})
      : metrics("1.2.3", "toy", 16), driver(options, model, &metrics) {
    driver.Start();
  }

  GenerationRequest Sampled(int tokens) const {
    GenerationRequest request = driver.Request(Prompt(9), tokens);
    request.open.mutable_sampling()->set_temperature(1);
    return request;
  }

  Exposition Read() {
    metrics.Refresh(driver.fleet.State());
    return testing::ReadExposition(metrics.registry().Serialize());
  }

  RouterMetrics metrics;
  EngineDriver driver;
};

double Emitted(const Exposition& series, const std::string& source) {
  return series.at(R"(tandem_emitted_tokens_total{model="toy",source=")" + source + "\"}");
}

double Fallbacks(const Exposition& series, const std::string& reason) {
  return series.at(R"(tandem_fallback_rounds_total{model="toy",reason=")" + reason + "\"}");
}

TEST(RouterMetricsTest, SpeculationMetricsAgreeWithCompletions) {
  Served served;
  v1::SpeculationStats all;
  int tokens = 0;
  for (int i = 0; i < 8; ++i) {
    // Some requests end in the middle of a block, and their last tokens were never emitted.
    const CallResult result = served.driver.Generate(
        i % 2 == 0 ? served.Sampled(20 + i) : served.driver.Request(Prompt(9), 20 + i));
    const v1::SpeculationStats& stats = result.completion->speculation();
    all.set_num_drafts(all.num_drafts() + stats.num_drafts());
    all.set_num_draft_tokens(all.num_draft_tokens() + stats.num_draft_tokens());
    all.set_num_accepted_tokens(all.num_accepted_tokens() + stats.num_accepted_tokens());
    all.set_num_tested_tokens(all.num_tested_tokens() + stats.num_tested_tokens());
    all.set_num_plain_rounds(all.num_plain_rounds() + stats.num_plain_rounds());
    for (int position = 0; position < 4; ++position) {
      if (all.num_accepted_tokens_per_position_size() <= position) {
        all.add_num_accepted_tokens_per_position(0);
        all.add_num_tested_tokens_per_position(0);
      }
      all.set_num_accepted_tokens_per_position(
          position, all.num_accepted_tokens_per_position(position) +
                        stats.num_accepted_tokens_per_position(position));
      all.set_num_tested_tokens_per_position(position,
                                             all.num_tested_tokens_per_position(position) +
                                                 stats.num_tested_tokens_per_position(position));
    }
    tokens += result.completion->usage().completion_tokens();
  }
  const Exposition series = served.Read();
  const auto of_draft = [&](const std::string& name) { return series.at(name + kDraft); };
  EXPECT_EQ(of_draft("tandem_drafts_total"), all.num_drafts());
  EXPECT_EQ(of_draft("tandem_draft_tokens_total"), all.num_draft_tokens());
  EXPECT_EQ(of_draft("tandem_accepted_tokens_total"), all.num_accepted_tokens());
  EXPECT_EQ(of_draft("tandem_tested_tokens_total"), all.num_tested_tokens());
  EXPECT_EQ(of_draft("tandem_accepted_tokens_per_draft_count"), all.num_drafts());
  EXPECT_EQ(of_draft("tandem_accepted_tokens_per_draft_sum"), all.num_accepted_tokens());
  EXPECT_EQ(of_draft("tandem_request_acceptance_ratio_count"), 8);
  for (int position = 0; position < 4; ++position) {
    const std::string labels =
        R"({draft_model="toy-draft",drafter="model",model="toy",position=")" +
        std::to_string(position) + "\"}";
    EXPECT_EQ(series.at("tandem_accepted_tokens_per_position_total" + labels),
              all.num_accepted_tokens_per_position(position));
    EXPECT_EQ(series.at("tandem_tested_tokens_per_position_total" + labels),
              all.num_tested_tokens_per_position(position));
  }
  EXPECT_EQ(Emitted(series, "accepted"), all.num_accepted_tokens());
  EXPECT_EQ(Emitted(series, "plain"), all.num_plain_rounds());
  EXPECT_GT(Emitted(series, "recovered"), 0);
  EXPECT_GT(Emitted(series, "bonus"), 0);
  EXPECT_EQ(Emitted(series, "accepted") + Emitted(series, "recovered") + Emitted(series, "bonus") +
                Emitted(series, "plain"),
            tokens);
}

TEST(RouterMetricsTest, TimesAgreeWithCompletions) {
  Served served;
  const CallResult result = served.driver.Generate(served.driver.Request(Prompt(9), 40));
  const v1::Timings& timings = result.completion->timings();
  const Exposition series = served.Read();
  const auto value = [&](const std::string& name) { return series.at(name + R"({model="toy"})"); };
  EXPECT_EQ(value("tandem_time_to_first_token_seconds_count"), 1);
  EXPECT_NEAR(value("tandem_time_to_first_token_seconds_sum"),
              timings.time_to_first_token_seconds(), 1e-9);
  EXPECT_NEAR(value("tandem_queue_wait_seconds_sum"), timings.queue_seconds(), 1e-9);
  EXPECT_NEAR(value("tandem_time_per_output_token_seconds_sum"), timings.decode_seconds() / 39,
              1e-9);
  const auto stage = [&](const std::string& name) {
    return series.at(R"(tandem_round_stage_duration_seconds_sum{model="toy",stage=")" + name +
                     "\"}");
  };
  EXPECT_NEAR(stage("draft"), timings.draft_seconds(), 1e-9);
  EXPECT_NEAR(stage("verify"), timings.verify_seconds(), 1e-9);
  EXPECT_NEAR(stage("transfer"), timings.transfer_seconds(), 1e-9);
  const double rounds = result.completion->speculation().num_drafts() +
                        // Without the prompt's round.
                        result.completion->speculation().num_plain_rounds() - 1;
  EXPECT_EQ(value("tandem_round_duration_seconds_count"), rounds);
  EXPECT_NEAR(value("tandem_round_duration_seconds_sum"),
              stage("draft") + stage("verify") + stage("transfer") + stage("commit"), 1e-9);
}

TEST(RouterMetricsTest, TransportsThatWorkersRefuseOrCannotShareAreCounted) {
  RouterMetrics metrics("1.2.3", "toy", 16);
  EngineDriver driver(Options(), ToyModel(), &metrics);
  driver.drafter.refuse_ring = v1::RING_TRANSPORT_SHM;
  for (ToyOptions* options : {&driver.drafter.options, &driver.verifier.options}) {
    options->transports.push_back(v1::RING_TRANSPORT_CUDA_IPC);
  }
  driver.drafter.options.device_uuid = "GPU-2";
  driver.Start();
  metrics.Refresh(driver.fleet.State());
  const Exposition series = testing::ReadExposition(metrics.registry().Serialize());
  const auto refusals = [&](const std::string& transport, const std::string& worker) {
    return series.at("tandem_ring_refusals_total{model=\"toy\",transport=\"" + transport +
                     "\",worker=\"" + worker + "\"}");
  };
  EXPECT_EQ(refusals("shm", "drafter"), 1);
  EXPECT_EQ(refusals("shm", "verifier"), 0);
  EXPECT_EQ(refusals("inline", "drafter"), 0);
  EXPECT_EQ(refusals("cuda_ipc", "drafter"), 1);
  EXPECT_EQ(refusals("cuda_ipc", "verifier"), 0);
}

TEST(RouterMetricsTest, MetricsShowTheStates) {
  EngineOptions options = Options();
  options.workers.max_slots = 2;
  Served served(options);
  for (int i = 0; i < 5; ++i) served.driver.Send(served.Sampled(30));
  for (int i = 0; i < 12; ++i) served.driver.Step();
  Exposition series = served.Read();
  EXPECT_EQ(series.at(R"(tandem_slots{model="toy",state="running"})"), 2);
  EXPECT_EQ(series.at(R"(tandem_slots{model="toy",state="free"})"), 0);
  EXPECT_EQ(series.at(R"(tandem_requests_waiting{model="toy"})"), 3);
  EXPECT_EQ(series.at(R"(tandem_drafter_attached{model="toy"})"), 1);
  EXPECT_EQ(series.at(R"(tandem_verifier_attached{model="toy"})"), 1);
  EXPECT_EQ(series.at(R"(tandem_ring_transport_info{model="toy",transport="shm"})"), 1);
  EXPECT_EQ(series.at(R"(tandem_ring_transport_info{model="toy",transport="none"})"), 0);
  EXPECT_EQ(series.at(R"(tandem_ring_open_duration_seconds_count{model="toy",transport="shm"})"),
            1);
  EXPECT_EQ(series.at(R"(tandem_draft_length{model="toy"})"), 4);
  EXPECT_GT(series.at(R"(tandem_baseline_step_seconds{model="toy"})"), 0);
  // Drafts of a fixed length are also compared with plain decoding.
  EXPECT_GT(series.at(R"(tandem_speculation_gain_ratio{model="toy"})"), 1.05);
  EXPECT_EQ(series.at(R"(tandem_worker_pods{model="toy",state="ready"})"), 1);

  served.driver.Kill(Worker::kDrafter);
  series = served.Read();
  EXPECT_EQ(series.at(R"(tandem_drafter_attached{model="toy"})"), 0);
  EXPECT_EQ(series.at(R"(tandem_ring_transport_info{model="toy",transport="none"})"), 1);
  EXPECT_EQ(
      series.at(
          R"(tandem_epoch_changes_total{model="toy",reason="disconnected",worker="drafter"})"),
      1);
  EXPECT_EQ(
      series.at(R"(tandem_epoch_changes_total{model="toy",reason="attached",worker="drafter"})"),
      1);
  // An attempt to reach a lost worker is not a change.
  ASSERT_TRUE(served.driver.Run());
  EXPECT_EQ(
      served.Read().at(
          R"(tandem_epoch_changes_total{model="toy",reason="disconnected",worker="drafter"})"),
      1);
}

TEST(RouterMetricsTest, PodsAreCountedAsTheyServe) {
  RouterMetrics metrics("1", "toy", 4);
  FleetState state;
  state.num_pods_ready = 2;
  state.num_pods_lost = 1;
  metrics.Refresh(state);
  const Exposition series = testing::ReadExposition(metrics.registry().Serialize());
  EXPECT_EQ(series.at(R"(tandem_worker_pods{model="toy",state="ready"})"), 2);
  EXPECT_EQ(series.at(R"(tandem_worker_pods{model="toy",state="lost"})"), 1);
  EXPECT_EQ(metrics.Sample(state).pods, 3);
  EXPECT_EQ(metrics.Sample(state).pods_ready, 2);
}

TEST(RouterMetricsTest, EveryPlainRoundHasAReason) {
  {  // no drafter
    Served served;
    served.driver.Kill(Worker::kDrafter);
    const CallResult result = served.driver.Generate(served.driver.Request(Prompt(9), 20));
    const Exposition series = served.Read();
    EXPECT_EQ(Fallbacks(series, "no_drafter"),
              result.completion->speculation().num_plain_rounds() - 1);
    EXPECT_EQ(series.count(std::string("tandem_drafts_total") + kDraft) == 0 ||
                  series.at(std::string("tandem_drafts_total") + kDraft) == 0,
              true);
  }
  {  // a request without drafting does not fall back
    Served served;
    GenerationRequest request = served.driver.Request(Prompt(9), 20);
    request.draft_length = 0;
    served.driver.Generate(std::move(request));
    for (const char* reason : kFallbackNames) EXPECT_EQ(Fallbacks(served.Read(), reason), 0);
  }
  {  // drafts that the drafter refuses
    Served served;
    served.driver.change_draft_reply = [](v1::DraftReply& reply) {
      for (v1::ProposeResult& result : *reply.mutable_propose()->mutable_results()) {
        result.mutable_state()->set_code(v1::WORKER_CODE_NON_FINITE_LOGITS);
        result.clear_draft_token_ids();
      }
    };
    const CallResult result = served.driver.Generate(served.driver.Request(Prompt(9), 20));
    const Exposition series = served.Read();
    EXPECT_EQ(Fallbacks(series, "draft_failed") + Fallbacks(series, "no_room"),
              result.completion->speculation().num_plain_rounds() - 1);
    EXPECT_GT(Fallbacks(series, "draft_failed"), 10);
  }
  {  // blocks that cannot be judged
    Served served;
    served.driver.change_verifier_reply = [](v1::VerifierReply& reply) {
      for (v1::VerifyResult& result : *reply.mutable_verify()->mutable_results()) {
        if (result.num_accepted() == 0) result.set_ring_error("planted");
      }
    };
    served.driver.Generate(served.Sampled(30));
    EXPECT_GT(Fallbacks(served.Read(), "ring_error"), 0);
  }
  {  // no draft pays, and the controller says so
    ToyModel model;
    model.percent_agreement = 0;
    Served served(Options(std::nullopt), model);
    const CallResult result = served.driver.Generate(served.driver.Request(Prompt(9), 200));
    const Exposition series = served.Read();
    EXPECT_GT(Fallbacks(series, "not_worthwhile"),
              0.5 * result.completion->speculation().num_plain_rounds());
    EXPECT_NEAR(series.at(R"(tandem_speculation_gain_ratio{model="toy"})"), 1, 0.2);
  }
}

TEST(RouterMetricsTest, PrefixLookupsCountOnlyPrompts) {
  Served served;
  // The toy workers have no prefix cache. These find two pages of every prompt except the first.
  bool verifier_finds = false;
  bool drafter_finds = false;
  served.driver.change_verifier_reply = [&](v1::VerifierReply& reply) {
    if (!reply.has_verify() || !std::exchange(verifier_finds, false)) return;
    reply.mutable_verify()->mutable_results(0)->set_num_cached_tokens(8);
  };
  served.driver.change_draft_reply = [&](v1::DraftReply& reply) {
    if (!reply.has_propose() || !std::exchange(drafter_finds, false)) return;
    reply.mutable_propose()->mutable_results(0)->set_num_cached_tokens(8);
  };
  for (int i = 0; i < 4; ++i) {
    verifier_finds = i > 0;
    drafter_finds = i > 0;
    const CallResult result = served.driver.Generate(served.driver.Request(Prompt(9), 100));
    const v1::Usage& usage = result.completion->usage();
    EXPECT_EQ(usage.cached_prompt_tokens(), i > 0 ? 8 : 0);
    EXPECT_EQ(usage.cached_draft_tokens(), i > 0 ? 8 : 0);
  }
  const Exposition series = served.Read();
  for (const std::string worker : {"verifier", "drafter"}) {
    const std::string labels = R"({model="toy",worker=")" + worker + "\"}";
    EXPECT_EQ(series.at("tandem_prefix_cache_lookup_tokens_total" + labels), 4 * 9) << worker;
    EXPECT_EQ(series.at("tandem_prefix_cache_hit_tokens_total" + labels), 3 * 8) << worker;
  }
}

TEST(RouterMetricsTest, RollbacksAreThoseOfVerdictsAndOfCommandsToTheDrafter) {
  Served served;
  std::vector<int> num_drafted;  // items of the Verify that is answered next
  int num_rejections = 0;
  int num_rejected = 0;
  served.driver.change_verifier_reply = [&](v1::VerifierReply& reply) {
    for (int i = 0; i < reply.verify().results_size(); ++i) {
      const int rejected = num_drafted[static_cast<size_t>(i)] -
                           static_cast<int>(reply.verify().results(i).num_accepted());
      num_rejections += rejected > 0 ? 1 : 0;
      num_rejected += rejected;
    }
  };
  served.driver.Send(served.driver.Request(Prompt(9), 60));
  served.driver.Send(served.Sampled(60));
  ASSERT_TRUE(served.driver.Run([&](int) {
    if (served.driver.to_verifier.empty()) return;
    num_drafted.clear();
    for (const v1::VerifyItem& item : served.driver.to_verifier.front().command.verify().items()) {
      num_drafted.push_back(item.draft_token_ids_size());
    }
  }));
  const Exposition series = served.Read();
  const auto value = [&](const std::string& name, const std::string& worker) {
    return series.at(name + R"({model="toy",worker=")" + worker + "\"}");
  };
  EXPECT_GT(num_rejections, 10);
  EXPECT_EQ(value("tandem_rollbacks_total", "verifier"), num_rejections);
  EXPECT_EQ(value("tandem_rolled_back_rows_total", "verifier"), num_rejected);
  const auto num_told = static_cast<int>(served.driver.drafter.rollbacks.size());
  EXPECT_GT(num_told, 5);
  EXPECT_EQ(value("tandem_rollbacks_total", "drafter"), num_told);
  EXPECT_GE(value("tandem_rolled_back_rows_total", "drafter"), num_told);
  EXPECT_LT(value("tandem_rolled_back_rows_total", "drafter"), num_rejected);
}

TEST(RouterMetricsTest, WithoutADrafterThereIsNoGain) {
  Served served;
  served.driver.Generate(served.driver.Request(Prompt(9), 100));
  EXPECT_EQ(served.Read().at(R"(tandem_draft_length{model="toy"})"), 4);
  served.driver.Kill(Worker::kDrafter);
  served.driver.Generate(served.driver.Request(Prompt(9), 100));
  EXPECT_EQ(served.Read().at(R"(tandem_draft_length{model="toy"})"), 0);
  EXPECT_EQ(served.Read().at(R"(tandem_speculation_gain_ratio{model="toy"})"), 1);
}

TEST(RouterMetricsTest, EveryCountHasItsOwnMetricOrAReasonHere) {
  // Each count gets a value by which the test finds it on the page.
  CountList values;
  std::iota(values.begin(), values.end(), uint64_t{900'001});
  FleetState state;
  state.counts = std::bit_cast<Counts>(values);
  RouterMetrics metrics("1", "toy", 4);
  metrics.Refresh(state);
  std::multiset<double> shown;
  for (const auto& [name, value] : testing::ReadExposition(metrics.registry().Serialize())) {
    shown.insert(value);
  }

  const Counts& counts = state.counts;
  const std::map<uint64_t, std::string> elsewhere = {
      {counts.finished, "tandem_requests_total counts calls, those that no engine saw too"},
      {counts.losses[Worker::kDrafter], "tandem_epoch_changes_total has the losses by reason"},
      {counts.losses[Worker::kVerifier], "tandem_epoch_changes_total has the losses by reason"},
      {counts.ring_errors, "tandem_fallback_rounds_total has the reason ring_error"},
      {counts.cached_prompt_tokens, "tandem_prefix_cache_hit_tokens_total has the prompts' hits"},
      {counts.cached_draft_tokens, "tandem_prefix_cache_hit_tokens_total has the prompts' hits"},
      {counts.ring_refusals[Worker::kDrafter][v1::RING_TRANSPORT_UNSPECIFIED], "never refused"},
      {counts.ring_refusals[Worker::kVerifier][v1::RING_TRANSPORT_UNSPECIFIED], "never refused"},
  };
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(shown.count(static_cast<double>(values[i])), elsewhere.contains(values[i]) ? 0u : 1u)
        << "count number " << i << " of Counts";
  }
}

TEST(RouterMetricsTest, CountersFollowTheCounts) {
  RouterMetrics metrics("1", "toy", 4);
  FleetState state;
  const auto preemptions = [&] {
    metrics.Refresh(state);
    const Exposition series = testing::ReadExposition(metrics.registry().Serialize());
    return series.at(R"(tandem_preemptions_total{model="toy"})");
  };
  EXPECT_EQ(preemptions(), 0);
  state.counts.preemptions = 3;
  EXPECT_EQ(preemptions(), 3);
  EXPECT_EQ(preemptions(), 3) << "a count that stays is not added again";
  state.counts.preemptions = 5;
  EXPECT_EQ(preemptions(), 5);
}

TEST(RouterMetricsTest, ReplaysCountOnlyThoseOfTheAudit) {
  RouterMetrics metrics("1", "toy", 4);
  FleetState state;
  state.audit.set_num_replayed(7);
  state.audit.set_num_mismatches(2);
  metrics.Refresh(state);
  const Exposition series = testing::ReadExposition(metrics.registry().Serialize());
  EXPECT_EQ(series.at(R"(tandem_audit_replays_total{model="toy",result="same"})"), 5);
  EXPECT_EQ(series.at(R"(tandem_audit_replays_total{model="toy",result="mismatch"})"), 2);
}

TEST(RouterMetricsTest, SamplesOfTheAuditAreCountedByDrafter) {
  RouterMetrics metrics("1", "toy", 4);
  FleetState state;
  const auto shown = [&](const std::string& drafter) {
    metrics.Refresh(state);
    const Exposition series = testing::ReadExposition(metrics.registry().Serialize());
    const auto found =
        series.find(R"(tandem_audit_samples_total{drafter=")" + drafter + R"(",model="toy"})");
    return found == series.end() ? -1 : found->second;
  };
  EXPECT_EQ(shown("eagle"), 0) << "a rate needs the zero";
  v1::AuditDrafterStats& eagle = *state.audit.add_drafters();
  eagle.set_name("eagle");
  eagle.set_num_samples(7);
  EXPECT_EQ(shown("eagle"), 7);
  v1::AuditDrafterStats& none = *state.audit.add_drafters();
  none.set_name("none");
  none.set_num_samples(3);
  state.audit.mutable_drafters(0)->set_num_samples(9);
  EXPECT_EQ(shown("eagle"), 9);
  EXPECT_EQ(shown("none"), 3);
}

// Series of what a drafter gained: tokens of its rounds, and those of plain decoding.
std::pair<double, double> GainOf(const Exposition& series, const std::string& drafter,
                                 const std::string& draft_model = "") {
  const std::string labels =
      R"({draft_model=")" + draft_model + R"(",drafter=")" + drafter + R"(",model="toy"})";
  return {series.at("tandem_drafter_tokens_total" + labels),
          series.at("tandem_drafter_plain_tokens_total" + labels)};
}

TEST(RouterMetricsTest, EachDrafterHasAGainOfZeroTokensFirst) {
  RouterMetrics metrics("1", "toy", 4);
  FleetState state;
  state.draft_models.emplace_back().name = "toy-draft";
  metrics.Refresh(state);
  const Exposition series = testing::ReadExposition(metrics.registry().Serialize());
  for (const std::string_view drafter : kDrafterNames) {
    const std::string model = drafter == "model" ? "toy-draft" : "";
    EXPECT_EQ(GainOf(series, std::string(drafter), model), std::make_pair(0.0, 0.0)) << drafter;
  }
}

TEST(RouterMetricsTest, GainsAgreeWithCompletions) {
  Served served;
  double tokens = 0;
  double plain_tokens = 0;
  for (int i = 0; i < 8; ++i) {
    const CallResult result = served.driver.Generate(served.driver.Request(Prompt(9 + i), 60));
    const v1::DrafterStats& stats = result.completion->speculation().drafters(0);
    tokens += stats.num_round_tokens();
    plain_tokens += stats.num_plain_tokens();
    if (i == 0) continue;  // the first rounds have no measured costs
    EXPECT_EQ(stats.num_round_tokens(), result.completion->usage().completion_tokens() -
                                            result.completion->speculation().num_plain_rounds());
  }
  const auto [shown, shown_plain] = GainOf(served.Read(), "model", "toy-draft");
  EXPECT_EQ(shown, tokens);
  EXPECT_GT(shown, 400);
  EXPECT_NEAR(shown_plain, plain_tokens, 1e-6);
  // With one request at a time, it is what the router expects of its rounds.
  EXPECT_NEAR(shown / shown_plain,
              served.Read().at(R"(tandem_speculation_gain_ratio{model="toy"})"), 0.25);
}

TEST(RouterMetricsTest, ADrafterThatIsRightGainsAndOneThatIsWrongDoesNot) {
  for (const bool right : {true, false}) {
    Served served;
    served.driver.verifier.row_seconds = 0.0002;
    for (int i = 0; i < 24; ++i) {
      GenerationRequest request = served.driver.Request(Prompt(9 + i), 60);
      request.drafters = DrafterSet(Drafter::kPrediction);
      request.prediction = testing::Plainly(Prompt(9 + i), 60);
      if (!right) {
        for (int32_t& token : request.prediction) token ^= 1;
      }
      served.driver.Generate(std::move(request));
    }
    const Exposition series = served.Read();
    const auto [tokens, plain_tokens] = GainOf(series, "prediction");
    ASSERT_GT(tokens, 10);
    EXPECT_EQ(GainOf(series, "suffix"), std::make_pair(0.0, 0.0));
    EXPECT_EQ(GainOf(series, "model", "toy-draft"), std::make_pair(0.0, 0.0));
    if (right) {
      EXPECT_GT(tokens / plain_tokens, 3) << "drafts of four tokens are kept as a whole";
    } else {
      EXPECT_LT(tokens / plain_tokens, 1);
    }
  }
}

TEST(RouterMetricsTest, HeadsPayForTheirProposals) {
  const auto gain = [](double propose_seconds) {
    RouterMetrics metrics("1", "toy", 16);
    EngineDriver driver(Options(), ToyModel(), &metrics);
    driver.drafter_alive = false;
    driver.verifier.options.self_drafter = "eagle";
    driver.verifier.propose_seconds = propose_seconds;
    driver.Start();
    GenerationRequest request = driver.Request(Prompt(9), 400);
    request.drafters = DrafterSet(Drafter::kEagle);
    const v1::Completion completion = *driver.Generate(std::move(request)).completion;
    EXPECT_GT(completion.speculation().num_drafts(), 20);
    metrics.Refresh(driver.fleet.State());
    const auto [tokens, plain_tokens] =
        GainOf(testing::ReadExposition(metrics.registry().Serialize()), "eagle");
    const v1::DrafterStats& stats = completion.speculation().drafters(0);
    EXPECT_EQ(stats.num_round_tokens(), tokens);
    EXPECT_NEAR(stats.num_plain_tokens(), plain_tokens, 1e-6);
    return tokens / plain_tokens;
  };
  const double cheap = gain(1e-6);
  EXPECT_GT(cheap, 1);
  // A batch takes 2 ms. Of these, a proposal now takes 0.5 ms, which are a third of a plain round.
  EXPECT_NEAR(gain(0.0005), cheap / (1 + 1.0 / 3), 0.1 * cheap);
}

TEST(RouterMetricsTest, CallsAreCountedByStatus) {
  RouterMetrics metrics("1", "toy", 4);
  metrics.OnFinished(absl::StatusCode::kOk);
  metrics.OnFinished(absl::StatusCode::kOk);
  metrics.OnFinished(absl::StatusCode::kDeadlineExceeded);
  const Exposition series = testing::ReadExposition(metrics.registry().Serialize());
  EXPECT_EQ(series.at(R"(tandem_requests_total{model="toy",status="OK"})"), 2);
  EXPECT_EQ(series.at(R"(tandem_requests_total{model="toy",status="DEADLINE_EXCEEDED"})"), 1);
  EXPECT_EQ(series.at(R"(tandem_requests_total{model="toy",status="RESOURCE_EXHAUSTED"})"), 0);
}

}  // namespace
}  // namespace tandem
