#include "services/cli/commands/top_view.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "services/cli/bench/share.h"
#include "services/cli/terminal/table.h"

namespace tandem::cli {

namespace {

constexpr double kSpanSeconds = 600;
constexpr double kRateSeconds = 5;         // time over which rates are averaged
constexpr double kAcceptanceSeconds = 20;  // time over which acceptance is averaged
constexpr size_t kMaxEvents = 50;
constexpr size_t kShownEvents = 6;
constexpr int kMinColumns = 40;
constexpr size_t kNumberWidths[] = {10, 10, 12, 7, 13, 12, 9};
constexpr const char* kBlocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

std::string PercentOf(double part, double all) {
  return all > 0 ? Number(100 * part / all, 0) + " %" : "–";
}

std::string Short(double value) { return Number(value, value >= 100 ? 0 : value >= 10 ? 1 : 2); }

std::string Duration(double seconds) {
  if (seconds >= 86400) return absl::StrFormat("%d d", static_cast<int>(seconds / 86400));
  if (seconds >= 3600) return absl::StrFormat("%d h", static_cast<int>(seconds / 3600));
  if (seconds >= 60) return absl::StrFormat("%d min", static_cast<int>(seconds / 60));
  return absl::StrFormat("%d s", static_cast<int>(std::max(0.0, seconds)));
}

// Draws one block character for each value. `most` is the height of a full block.
std::string Curve(const std::vector<double>& values, double most) {
  std::string text;
  for (const double value : values) {
    const double height = most > 0 ? std::clamp(value / most, 0.0, 1.0) : 0;
    text += kBlocks[static_cast<size_t>(std::lround(height * 8))];
  }
  return text;
}

std::string TimeOfDay(double unix_time) {
  const auto seconds = static_cast<std::time_t>(unix_time);
  std::tm local{};
  localtime_r(&seconds, &local);
  return absl::StrFormat("%02d:%02d:%02d", local.tm_hour, local.tm_min, local.tm_sec);
}

// Null: the router knows too little.
std::string GainOf(const nlohmann::json& gain) {
  if (gain.is_null()) return "–";
  return Number(gain.at("ratio"), 2) + "× ± " + Number(gain.at("error"), 2);
}

std::vector<std::string> HeadsOf(const nlohmann::json& heads) {
  std::vector<std::string> names;
  for (const nlohmann::json& one : heads) {
    const std::string name = one.at("name");
    names.push_back(std::string(one.at("drafter")) + (name.empty() ? "" : " (" + name + ")"));
  }
  return names;
}

}  // namespace

absl::Status TopView::Take(const std::string& json) {
  const nlohmann::json answer = nlohmann::json::parse(json, nullptr, false);
  try {
    const double started = answer.at("started");
    if (started != started_) {  // another router answers
      samples_.clear();
      events_.clear();
      started_ = started;
    }
    version_ = answer.at("version");
    model_ = answer.at("model");
    for (const nlohmann::json& from : answer.at("samples")) {
      Sample sample;
      sample.time = from.at("t");
      sample.drafted = from.at("drafted");
      sample.accepted = from.at("accepted");
      sample.tested = from.at("tested");
      sample.emitted = from.at("emitted");
      sample.rounds = from.at("rounds");
      sample.stages = from.at("stages");
      sample.gain = from.at("gain");
      samples_.push_back(sample);
    }
    while (!samples_.empty() && samples_.front().time < since() - kSpanSeconds) {
      samples_.pop_front();
    }
    // An event after the newest sample is ignored now: the next answer has it too.
    const double known = events_.empty() ? 0 : events_.back().time;
    for (const nlohmann::json& from : answer.at("events")) {
      if (from.at("t") <= known) continue;
      events_.push_back({from.at("t"), from.at("level"), from.at("text")});
      if (events_.size() > kMaxEvents) events_.pop_front();
    }
    if (!answer.contains("state")) return absl::OkStatus();
    const nlohmann::json& state = answer.at("state");
    const auto pages = [](const nlohmann::json& from) {
      return Pages{.total = from.at("total"), .used = from.at("used")};
    };
    state_ = {.slots = state.at("slots"),
              .running = state.at("running"),
              .waiting = state.at("waiting"),
              .verifier = state.at("verifier"),
              .drafter = state.at("drafter"),
              .has_drafter = state.at("has_drafter"),
              .draft_model = state.at("draft_model"),
              .drafter_problem = state.at("drafter_problem"),
              .transport = state.at("transport"),
              .heads = HeadsOf(state.at("heads")),
              .pods = state.at("pods").at("total"),
              .pods_ready = state.at("pods").at("ready"),
              .kv = pages(state.at("kv")),
              .draft_kv = pages(state.at("draft_kv")),
              .totals = {.finished = state.at("finished"),
                         .preemptions = state.at("preemptions"),
                         .verifier_losses = state.at("verifier_losses"),
                         .drafter_losses = state.at("drafter_losses"),
                         .ring_errors = state.at("ring_errors")}};
    accepted_at_ = answer.at("positions").at("accepted").get<std::vector<double>>();
    tested_at_ = answer.at("positions").at("tested").get<std::vector<double>>();
    drafters_.clear();
    for (const nlohmann::json& drafter : answer.at("drafters")) {
      drafters_.push_back({.name = drafter.at("name"),
                           .drafted = drafter.at("drafted"),
                           .accepted = drafter.at("accepted"),
                           .gain = GainOf(drafter.at("gain"))});
    }
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument(std::string("this is not an answer of a router's live page: ") +
                           error.what());
  }
  return absl::OkStatus();
}

TopView::Sample TopView::Over(size_t i, double seconds) const {
  const Sample& after = samples_[i];
  size_t j = i;
  while (j > 0 && after.time - samples_[j - 1].time <= seconds) --j;
  const Sample& before = samples_[j];
  Sample change;
  // Counts that became smaller belong to another drafter.
  if (j == i || before.rounds > after.rounds || before.drafted > after.drafted) return change;
  change.time = after.time - before.time;
  change.drafted = after.drafted - before.drafted;
  change.accepted = after.accepted - before.accepted;
  change.tested = after.tested - before.tested;
  change.rounds = after.rounds - before.rounds;
  for (size_t k = 0; k < change.emitted.size(); ++k) {
    change.emitted[k] = after.emitted[k] - before.emitted[k];
    change.stages[k] = after.stages[k] - before.stages[k];
  }
  return change;
}

std::string TopView::Header(const Palette& palette) const {
  std::string text = palette.Bold(VisibleText(model_));
  if (!state_.draft_model.empty()) {
    text += " drafted by " + palette.Bold(VisibleText(state_.draft_model));
  }
  for (const std::string& one : state_.heads) {
    text += (&one == state_.heads.data() ? " with heads " : ", ") + palette.Bold(VisibleText(one));
  }
  text += palette.Dim("  Tandem " + VisibleText(version_) + ", up for " +
                      Duration(since() - started_)) +
          "\n";
  return text + Workers(palette) + "\n\n";
}

std::string TopView::Workers(const Palette& palette) const {
  // A worker that was never lost and is not attached has not attached yet.
  const auto mark = [&](const std::string& name, bool attached, double losses) {
    return attached     ? palette.Good("●") + " " + name
           : losses > 0 ? palette.Bad("● " + name + " is gone")
                        : palette.Dim("○ " + name + " starts");
  };
  std::string text = mark("verifier", state_.verifier, state_.totals.verifier_losses);
  if (state_.has_drafter && !state_.drafter && !state_.drafter_problem.empty()) {
    text += "   " + palette.Bad("● no drafter: " + VisibleText(state_.drafter_problem));
  } else if (state_.has_drafter) {
    text += "   " + mark("drafter", state_.drafter, state_.totals.drafter_losses);
    if (!state_.drafter_problem.empty()) {
      text += "   " + palette.Bad("● a drafter is missing: " + VisibleText(state_.drafter_problem));
    }
  }
  if (state_.has_drafter && state_.drafter) {
    const bool rings = state_.transport != "none";
    const std::string ring = "ring: " + VisibleText(state_.transport);
    text += "   " + (rings ? palette.Good("●") + " " + ring : palette.Bad("● " + ring));
  }
  if (state_.pods > 1) {
    const std::string pods = absl::StrFormat("pods: %d of %d", state_.pods_ready, state_.pods);
    const bool all = state_.pods_ready == state_.pods;
    absl::StrAppend(
        &text, "   ",
        all ? absl::StrCat(palette.Good("●"), " ", pods) : palette.Bad(absl::StrCat("● ", pods)));
  }
  return text;
}

std::string TopView::Numbers(const Palette& palette) const {
  const size_t last = samples_.size() - 1;
  const Sample now = Over(last, kRateSeconds);
  const Sample slow = Over(last, kAcceptanceSeconds);
  return palette.Dim(TableLine(
             {"tokens/s", "expected", "acceptance", "α", "tokens/pass", "running", "waiting"},
             kNumberWidths)) +
         "\n" +
         palette.Bold(TableLine(
             {Short(Share(now.tokens(), now.time)),
              now.rounds > 0 ? Number(samples_[last].gain, 2) + "×" : "–",
              PercentOf(slow.accepted, slow.drafted), PercentOf(slow.accepted, slow.tested),
              slow.tokens() > 0 ? Number(slow.tokens() / (slow.tokens() - slow.emitted[0]), 2)
                                : "–",
              absl::StrFormat("%d of %d", state_.running, state_.slots),
              std::to_string(state_.waiting)},
             kNumberWidths)) +
         "\n\n";
}

std::string TopView::Curves(int width) const {
  const auto columns = static_cast<size_t>(std::max(kMinColumns, width) - 24);
  const size_t first = samples_.size() > columns ? samples_.size() - columns : 0;
  std::vector<double> rates;
  std::vector<double> acceptance;
  std::vector<double> alpha;
  for (size_t i = first; i < samples_.size(); ++i) {
    const Sample now = Over(i, kRateSeconds);
    rates.push_back(Share(now.tokens(), now.time));
    const Sample slow = Over(i, kAcceptanceSeconds);
    acceptance.push_back(Share(slow.accepted, slow.drafted));
    alpha.push_back(Share(slow.accepted, slow.tested));
  }
  const double most = *std::max_element(rates.begin(), rates.end());
  return "tokens/s    " + Curve(rates, most) + " up to " + Short(most) + "\n" + "acceptance  " +
         Curve(acceptance, 1) + "\n" + "α           " + Curve(alpha, 1) + "\n";
}

std::string TopView::Sources(const Palette& palette) const {
  const Sample now = Over(samples_.size() - 1, kRateSeconds);
  const auto rate = [&](size_t source) { return Short(Share(now.emitted[source], now.time)); };
  return absl::StrCat("by source   ", palette.Source(v1::TOKEN_SOURCE_ACCEPTED, "accepted "),
                      rate(0), ", ", palette.Source(v1::TOKEN_SOURCE_BONUS, "bonus "), rate(2),
                      ", ", palette.Source(v1::TOKEN_SOURCE_RECOVERED, "recovered "), rate(1),
                      ", plain ", rate(3), " tokens/s\n");
}

std::string TopView::Positions(const Palette& palette) const {
  std::string text;
  for (size_t i = 0; i < tested_at_.size() && i < accepted_at_.size(); ++i) {
    if (tested_at_[i] == 0) continue;
    const double share = accepted_at_[i] / tested_at_[i];
    text += absl::StrFormat("  %d %s %d %%", i + 1, palette.Bar(share, 4),
                            static_cast<int>(std::lround(100 * share)));
    if (i == 5) break;
  }
  return "by position" + (text.empty() ? "  nothing was drafted in the last minute" : text) + "\n";
}

std::string TopView::Drafters() const {
  std::string text;
  for (const DrafterShare& drafter : drafters_) {
    absl::StrAppend(&text, text.empty() ? "drafters    " : "            ",
                    absl::StrFormat("%-11s", VisibleText(drafter.name)),
                    PercentOf(drafter.accepted, drafter.drafted), " of ",
                    static_cast<int64_t>(drafter.drafted), " accepted, gain ", drafter.gain, "\n");
  }
  return text;
}

std::string TopView::Rounds() const {
  const Sample now = Over(samples_.size() - 1, kRateSeconds);
  if (now.rounds == 0) return "a round     –\n";
  const auto milliseconds = [&](size_t stage) {
    return Number(1e3 * now.stages[stage] / now.rounds, 2);
  };
  double all = 0;
  for (const double stage : now.stages) all += 1e3 * stage / now.rounds;
  return "a round     " + Number(all, 2) + " ms: verify " + milliseconds(2) + ", draft " +
         milliseconds(0) + ", transfer " + milliseconds(1) + ", router " + milliseconds(3) + "\n";
}

std::string TopView::Cache(const Palette& palette) const {
  const auto one = [&](const std::string& name, const Pages& pages) {
    return name + " " + palette.Bar(Share(pages.used, pages.total), 10) + " " +
           Number(pages.used, 0) + " of " + Number(pages.total, 0) + " pages";
  };
  return "KV cache    " + one("target", state_.kv) +
         (state_.has_drafter ? "   " + one("drafter", state_.draft_kv) : "") + "\n";
}

std::string TopView::Totals() const {
  const Sample& last = samples_.back();
  const auto count = [](double number, const char* what) {
    return absl::StrCat(Number(number, 0), " ", what);
  };
  return absl::StrCat("since start ", count(state_.totals.finished, "requests finished, "),
                      count(last.tokens(), "tokens, "), count(last.drafted, "drafted, "),
                      count(last.accepted, "accepted\n"), "            ",
                      count(state_.totals.preemptions, "preempted, "),
                      count(state_.totals.verifier_losses, "verifier losses, "),
                      count(state_.totals.drafter_losses, "drafter losses, "),
                      count(state_.totals.ring_errors, "ring errors\n\n"));
}

std::string TopView::Events(int width, const Palette& palette) const {
  std::string text;
  const size_t first = events_.size() > kShownEvents ? events_.size() - kShownEvents : 0;
  for (size_t i = first; i < events_.size(); ++i) {
    const Event& event = events_[i];
    std::string line = TimeOfDay(event.time) + "  " + VisibleText(event.text);
    std::replace(line.begin(), line.end(), '\n', ' ');
    const auto most = static_cast<size_t>(std::max(kMinColumns, width));
    // Log lines are ASCII except for names. A character that is cut only looks wrong.
    if (line.size() > most) line.resize(most);
    text += (event.level == "info" ? line : palette.Bad(line)) + "\n";
  }
  return text;
}

std::string TopView::Render(int width, const Palette& palette) const {
  if (samples_.empty()) return "waiting for the router's first figures\n";
  return Header(palette) + Numbers(palette) + Curves(width) + Sources(palette) +
         Positions(palette) + Drafters() + Rounds() + Cache(palette) + Totals() +
         Events(width, palette);
}

}  // namespace tandem::cli
