#include "services/cli/chat/chat_totals.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/cli/commands/summary.h"

namespace tandem::cli {

void ChatTotals::Add(const v1::Completion& completion) {
  run_.Add(completion);
  ++answers_;
  prompt_tokens_ += completion.usage().prompt_tokens();
  cached_tokens_ += completion.usage().cached_prompt_tokens();
  first_token_seconds_ += completion.timings().time_to_first_token_seconds();
  for (const v1::DrafterStats& drafter : completion.speculation().drafters()) {
    const bool has_name = drafter.name() == "model" && !drafter.model().empty();
    OfDrafter& sums = drafters_[has_name ? drafter.model() : drafter.name()];
    sums.drafted += drafter.num_draft_tokens();
    sums.accepted += drafter.num_accepted_tokens();
  }
}

void ChatTotals::AddStopped(int64_t tokens) {
  ++stopped_;
  stopped_tokens_ += tokens;
}

std::string ChatTotals::Render(const Palette& palette) const {
  std::string answers = absl::StrCat(answers_);
  if (stopped_ > 0) {
    absl::StrAppend(&answers, ", and ", stopped_, " stopped after ", stopped_tokens_,
                    stopped_tokens_ == 1 ? " token" : " tokens", stopped_ == 1 ? "" : " together");
  }
  std::string text = SummaryLine("answers", answers, palette);
  if (answers_ == 0) return text;
  text +=
      SummaryLine("tokens",
                  absl::StrFormat("%d in answers, %d in prompts (%d of them found in the cache)",
                                  run_.tokens(), prompt_tokens_, cached_tokens_),
                  palette);
  text += SummaryLine(
      "speed",
      absl::StrFormat("%.0f tokens/s; first token after %s on average", run_.TokensPerSecond(),
                      FormatSeconds(first_token_seconds_ / static_cast<double>(answers_))),
      palette);
  if (run_.drafted() == 0) return text;
  text += SummaryLine("acceptance",
                      absl::StrFormat("%.0f %% of drafted (%d of %d); %.2f tokens per pass",
                                      100 * run_.AcceptanceRate(), run_.accepted(), run_.drafted(),
                                      run_.TokensPerPass()),
                      palette);
  bool is_first = true;
  for (const auto& [name, sums] : drafters_) {
    text += SummaryLine(is_first ? "by drafter" : "",
                        absl::StrFormat("%-14s %d of %d drafted tokens accepted", name,
                                        sums.accepted, sums.drafted),
                        palette);
    is_first = false;
  }
  return text;
}

std::string AnswerCosts(const v1::Completion& completion) {
  RunTotals run;
  run.Add(completion);
  std::string text = absl::StrFormat("%d %s", run.tokens(), run.tokens() == 1 ? "token" : "tokens");
  if (run.TokensPerSecond() > 0)
    absl::StrAppendFormat(&text, ", %.0f tokens/s", run.TokensPerSecond());
  if (run.drafted() > 0) {
    absl::StrAppendFormat(&text, ", %.0f %% of drafted tokens accepted",
                          100 * run.AcceptanceRate());
  }
  absl::StrAppend(&text, ", first token after ",
                  FormatSeconds(completion.timings().time_to_first_token_seconds()));
  return text;
}

}  // namespace tandem::cli
