#include "services/cli/commands/comparison.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/status.h"
#include "services/cli/bench/run_totals.h"
#include "services/cli/commands/summary.h"
#include "services/cli/supervisor/lookup_names.h"

namespace tandem::cli {

namespace {

// --compare measures for kCompareBudget, or until it has kMaxPairs. If a pair takes long, it goes
// on until it has RatioInterval::kLeastPairs, but for kSlowBudget at most.
constexpr int kMaxPairs = 50;
constexpr std::chrono::seconds kCompareBudget{4};
constexpr std::chrono::seconds kSlowBudget{60};

bool IgnoreMessage(const v1::GenerateResponse&) { return true; }

Comparison::Text CompareText(const v1::GenerateRequest& request,
                             const v1::GenerateResponse& drafted, const v1::GenerateResponse& plain,
                             size_t* first_difference) {
  const v1::SamplingParams& sampling = request.sampling_params();
  const bool greedy = sampling.has_temperature() && sampling.temperature() == 0;
  if (!drafted.completion().lossless()) return Comparison::Text::kNotLossless;
  if (!greedy && !drafted.completion().speculation().reproducible()) {
    return Comparison::Text::kNotPromised;
  }
  const auto [a, b] = std::mismatch(drafted.token_ids().begin(), drafted.token_ids().end(),
                                    plain.token_ids().begin(), plain.token_ids().end());
  *first_difference = a - drafted.token_ids().begin();
  const bool same = a == drafted.token_ids().end() && b == plain.token_ids().end() &&
                    drafted.text() == plain.text();
  return same ? Comparison::Text::kIdentical : Comparison::Text::kDiffers;
}

// Returns why no token of the request was drafted, to follow the word "because".
std::string WhyNoDrafts(const v1::GenerateRequest& request, GenerationClient& client) {
  const v1::SpeculationParams& speculation = request.speculation();
  if (speculation.has_enabled() && !speculation.enabled()) {
    return "the request turned drafting off (--no-draft)";
  }
  if (const std::string& name = speculation.drafter(); IsLookup(name)) {
    return "the drafter " + name + " found nothing that agrees with the text, or nothing that pays";
  }
  if (const std::string& name = speculation.drafter(); IsSelfDrafter(name)) {
    return "the drafter " + name + " is not expected to pay (--draft-length sets a fixed length)";
  }
  if (speculation.drafter() == "none") return "the request names no drafter (--drafter none)";
  const auto info = client.GetServerInfo();
  if (!info.ok()) return "the server does not say why";
  if (!info->drafter_problem().empty()) return "no drafter is attached: " + info->drafter_problem();
  if (!info->drafter_attached()) {
    return "the server has no draft model (--draft), and no lookup found anything";
  }
  return "the server expected no gain from it (--draft-length sets a fixed length)";
}

}  // namespace

v1::GenerateRequest OneSide(const v1::GenerateRequest& request,
                            const v1::GenerateResponse& streamed, bool drafting) {
  const v1::Completion& completion = streamed.completion();
  v1::GenerateRequest repeated = request;
  repeated.clear_request_id();
  repeated.mutable_sampling_params()->set_seed(completion.seed());
  v1::SpeculationParams* speculation = repeated.mutable_speculation();
  speculation->set_reproducible(completion.speculation().reproducible());
  if (!drafting) {
    speculation->set_enabled(false);
    speculation->clear_draft_length();
    speculation->clear_max_tree_nodes();
    speculation->clear_drafter();
    speculation->clear_draft_sampling();
  }
  return repeated;
}

absl::StatusOr<Comparison> Compare(const v1::GenerateRequest& request,
                                   const v1::GenerateResponse& streamed, GenerationClient& client) {
  const v1::GenerateRequest drafted_request = OneSide(request, streamed, true);
  const v1::GenerateRequest plain_request = OneSide(request, streamed, false);
  Comparison comparison;
  RunTotals drafted_totals;
  RunTotals plain_totals;
  std::vector<double> ratios;
  const auto begin = std::chrono::steady_clock::now();
  for (int pair = 0; pair < kMaxPairs; ++pair) {
    const auto budget = pair < RatioInterval::kLeastPairs ? kSlowBudget : kCompareBudget;
    if (pair > 0 && std::chrono::steady_clock::now() > begin + budget) break;
    v1::GenerateResponse drafted;
    v1::GenerateResponse plain;
    for (const bool drafting : {pair % 2 == 0, pair % 2 != 0}) {
      auto& response = drafting ? drafted : plain;
      TANDEM_ASSIGN_OR_RETURN(
          response, client.Generate(drafting ? drafted_request : plain_request, IgnoreMessage));
    }
    drafted_totals.Add(drafted.completion());
    plain_totals.Add(plain.completion());
    const double drafted_rate = TokensPerSecond(drafted.completion());
    const double plain_rate = TokensPerSecond(plain.completion());
    if (drafted_rate > 0 && plain_rate > 0) ratios.push_back(drafted_rate / plain_rate);
    if (comparison.text != Comparison::Text::kDiffers) {
      comparison.text = CompareText(request, streamed, plain, &comparison.first_difference);
    }
  }
  if (drafted_totals.drafted() == 0) {
    comparison.why_no_drafts = WhyNoDrafts(request, client);
    if (streamed.completion().speculation().num_draft_tokens() > 0) {
      comparison.why_no_drafts += "; the run above drafted, and the measured ones did not";
    }
  }
  comparison.drafted_tokens_per_second = drafted_totals.TokensPerSecond();
  comparison.plain_tokens_per_second = plain_totals.TokensPerSecond();
  comparison.speedup = MeanRatio(ratios);
  return comparison;
}

std::string FormatSpeedup(const RatioInterval& speedup) {
  if (!speedup.is_shown()) {
    return absl::StrFormat(
        "%.2f× (%s: too few for an interval)", speedup.ratio,
        speedup.pairs == 1 ? "one pair" : absl::StrFormat("%d pairs", speedup.pairs));
  }
  return absl::StrFormat("%.2f× (95 %% interval %.2f – %.2f, %d interleaved pairs of this prompt)",
                         speedup.ratio, speedup.low, speedup.high, speedup.pairs);
}

std::string RenderComparison(const Comparison& comparison, const Palette& palette) {
  std::string text;
  if (comparison.why_no_drafts.empty()) {
    text += SummaryLine("with drafting",
                        absl::StrFormat("%.0f tokens/s", comparison.drafted_tokens_per_second),
                        palette);
    text += SummaryLine(
        "without", absl::StrFormat("%.0f tokens/s", comparison.plain_tokens_per_second), palette);
    text += SummaryLine("speedup", palette.Bold(FormatSpeedup(comparison.speedup)), palette);
  } else {
    text += SummaryLine(
        "speedup", palette.Bad("none: nothing was drafted, because " + comparison.why_no_drafts),
        palette);
  }
  std::string same;
  switch (comparison.text) {
    case Comparison::Text::kIdentical:
      same = palette.Good("identical, token for token");
      break;
    case Comparison::Text::kDiffers:
      same = palette.Bad(
          absl::StrFormat("DIFFERS from token %d on: this must not happen; please report it",
                          comparison.first_difference));
      break;
    case Comparison::Text::kNotPromised:
      same =
          "not compared: plain sampling has the same distribution, not the same draws "
          "(--seed, --reproducible or --temperature 0 make the text equal too)";
      break;
    case Comparison::Text::kNotLossless:
      same = "not compared: with --lenience the output may differ";
      break;
  }
  text += SummaryLine("text", same, palette);
  return text;
}

nlohmann::json ToJson(const Comparison& comparison) {
  if (!comparison.why_no_drafts.empty()) return {{"why_no_drafts", comparison.why_no_drafts}};
  nlohmann::json json = {{"drafted_tokens_per_second", comparison.drafted_tokens_per_second},
                         {"plain_tokens_per_second", comparison.plain_tokens_per_second},
                         {"speedup", comparison.speedup.ratio},
                         {"speedup_95_percent", nullptr},  // null: too few pairs
                         {"pairs", comparison.speedup.pairs},
                         {"text_identical", nullptr}};  // null: not promised for such a request
  if (comparison.speedup.is_shown()) {
    json["speedup_95_percent"] = {comparison.speedup.low, comparison.speedup.high};
  }
  if (comparison.text == Comparison::Text::kIdentical) json["text_identical"] = true;
  if (comparison.text == Comparison::Text::kDiffers) json["text_identical"] = false;
  return json;
}

}  // namespace tandem::cli
