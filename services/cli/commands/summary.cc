#include "services/cli/commands/summary.h"

#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"

namespace tandem::cli {

namespace {

constexpr int kBarWidth = 24;

std::string FinishReason(const v1::Completion& completion) {
  switch (completion.stop_reason_case()) {
    case v1::Completion::kStopString:
      return "stopped at a stop string";
    case v1::Completion::kStopTokenId:
      return absl::StrFormat("stopped at token %d", completion.stop_token_id());
    default:
      return completion.finish_reason() == v1::FINISH_REASON_LENGTH ? "length limit reached"
                                                                    : "stopped";
  }
}

std::string Sources(const v1::GenerateResponse& response, const Palette& palette) {
  static const std::vector<std::pair<v1::TokenSource, std::string>> kNames = {
      {v1::TOKEN_SOURCE_ACCEPTED, "accepted"},
      {v1::TOKEN_SOURCE_RECOVERED, "recovered"},
      {v1::TOKEN_SOURCE_BONUS, "bonus"},
      {v1::TOKEN_SOURCE_PLAIN, "plain"}};
  std::string text;
  for (const auto& [source, name] : kNames) {
    int count = 0;
    for (int token_source : response.sources()) count += token_source == source ? 1 : 0;
    if (count == 0) continue;
    if (!text.empty()) text += ", ";
    text += palette.Source(source, absl::StrFormat("%d %s", count, name));
  }
  return text;
}

// What the drafter gained for this request. Too few rounds say nothing.
std::string Gain(const v1::DrafterStats& drafter) {
  constexpr int kLeastDrafts = 30;  // as on the live page
  if (drafter.num_drafts() < kLeastDrafts || drafter.num_plain_tokens() <= 0) return "";
  return absl::StrFormat(", gain %.2f×", drafter.num_round_tokens() / drafter.num_plain_tokens());
}

// What each drafter did, unless the draft model was alone.
std::string Drafters(const v1::SpeculationStats& speculation, const Palette& palette) {
  std::string text;
  if (speculation.drafters_size() == 1 && speculation.drafters(0).name() == "model") return text;
  for (const v1::DrafterStats& drafter : speculation.drafters()) {
    text += SummaryLine(text.empty() ? "by drafter" : "",
                        absl::StrFormat("%-10s %d of %d drafted tokens accepted in %d drafts",
                                        drafter.name(), drafter.num_accepted_tokens(),
                                        drafter.num_draft_tokens(), drafter.num_drafts()) +
                            Gain(drafter),
                        palette);
  }
  if (speculation.num_trees() > 0) {
    text += SummaryLine(
        "trees",
        absl::StrFormat("%d of %d drafts", speculation.num_trees(), speculation.num_drafts()),
        palette);
  }
  return text;
}

std::string Positions(const v1::SpeculationStats& speculation, const RunTotals& totals,
                      const Palette& palette) {
  std::string text;
  const std::vector<double> alphas = totals.AlphaPerPosition();
  const auto& tested = speculation.num_tested_tokens_per_position();
  for (size_t i = 0; i < alphas.size(); ++i) {
    const int num_tested = tested.Get(static_cast<int>(i));
    if (num_tested == 0) break;  // no later position was tested either
    text += SummaryLine(i == 0 ? "per position" : "",
                        absl::StrFormat("%2d ", i + 1) + palette.Bar(alphas[i], kBarWidth) +
                            absl::StrFormat(" %.2f of %d", alphas[i], num_tested),
                        palette);
  }
  return text;
}

}  // namespace

std::string SummaryLine(const std::string& label, const std::string& text, const Palette& palette) {
  return "  " + palette.Dim(absl::StrFormat("%-14s", label)) + text + "\n";
}

std::string RenderSummary(const v1::GenerateResponse& response, bool shows_speed,
                          const Palette& palette) {
  const v1::Completion& completion = response.completion();
  RunTotals totals;
  totals.Add(completion);

  std::string text;
  text += SummaryLine(
      "tokens",
      absl::StrFormat("%d after a prompt of %d; %s", completion.usage().completion_tokens(),
                      completion.usage().prompt_tokens(), FinishReason(completion)) +
          // Another seed does not give the same text again.
          (completion.speculation().reproducible() ? absl::StrFormat("; seed %u", completion.seed())
                                                   : ""),
      palette);
  text += SummaryLine("sources", Sources(response, palette), palette);
  if (totals.rounds() > 0) {
    text += SummaryLine(
        "target passes",
        absl::StrFormat("%d after prefill; ", totals.rounds()) +
            palette.Bold(absl::StrFormat("%.2f tokens per pass", totals.TokensPerPass())),
        palette);
  }
  if (totals.drafted() > 0) {
    text += SummaryLine(
        "acceptance",
        absl::StrFormat("%.0f %% of drafted (%d of %d); α %.2f of tested (%d of %d)",
                        100 * totals.AcceptanceRate(), totals.accepted(), totals.drafted(),
                        totals.Alpha(), totals.accepted(), totals.tested()),
        palette);
    text += Drafters(completion.speculation(), palette) +
            Positions(completion.speculation(), totals, palette);
  }
  const v1::Timings& timings = completion.timings();
  std::string speed = "first token after " + FormatSeconds(timings.time_to_first_token_seconds());
  if (shows_speed && totals.TokensPerSecond() > 0) {
    speed += "; " + palette.Bold(absl::StrFormat("%.0f tokens/s", totals.TokensPerSecond())) +
             " after it";
  }
  text += SummaryLine("speed", speed, palette);
  const TimeSplit& seconds = totals.seconds();
  if (seconds.Total() > 0) {
    const std::array<std::pair<const char*, double>, 4> parts = {{{"draft", seconds.draft},
                                                                  {"transfer", seconds.transfer},
                                                                  {"verify", seconds.verify},
                                                                  {"router", seconds.router}}};
    std::string split;
    for (const auto& [name, part] : parts) {
      if (!split.empty()) split += ", ";
      split += absl::StrFormat("%s %.0f %%", name, 100 * part / seconds.Total());
    }
    text += SummaryLine("time", split, palette);
  }
  if (!completion.lossless()) {
    text +=
        SummaryLine("", palette.Bad("lenience is on: the output distribution may differ"), palette);
  }
  for (const std::string& warning : completion.warnings()) {
    text += SummaryLine("warning", palette.Bad(warning), palette);
  }
  return text;
}

}  // namespace tandem::cli
