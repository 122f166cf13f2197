#include "services/cli/commands/generate_command.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "common/status.h"
#include "services/cli/commands/summary.h"
#include "services/cli/commands/text_attribution.h"
#include "services/cli/terminal/errors.h"
#include "services/cli/terminal/utf8.h"

namespace tandem::cli {

namespace {

// --compare measures until it has this many pairs. With more than one pair, it also stops after
// this many seconds.
constexpr int kMaxPairs = kLeastPairs;
constexpr std::chrono::seconds kCompareBudget{4};

absl::StatusOr<std::string> ReadPrompt(const GenerateOptions& options, Console& console) {
  std::string prompt = options.prompt;
  if (!options.prompt_file.empty()) {
    std::ifstream file(options.prompt_file, std::ios::binary);
    if (!file) return InvalidArgument("--prompt-file: cannot read " + options.prompt_file);
    prompt.assign(std::istreambuf_iterator<char>(file), {});
  } else if (prompt == "-") {
    prompt.assign(std::istreambuf_iterator<char>(console.in), {});
  }
  const size_t valid = ValidUtf8Prefix(prompt);
  if (valid != prompt.size()) {
    return InvalidArgument("prompt: byte " + std::to_string(valid) + " is not valid UTF-8");
  }
  if (prompt.empty()) return InvalidArgument("prompt: is empty");
  return prompt;
}

// Writes text when it arrives, colored by source.
class TokenPrinter {
 public:
  TokenPrinter(const GenerateOptions& options, GenerationClient& client, Console& console)
      : console_(console),
        palette_(WantsColor(options.color, console.out_is_terminal)),
        attribution_([this, &client,
                      skip = !options.request.sampling_params().has_skip_special_tokens() ||
                             options.request.sampling_params().skip_special_tokens()](
                         int32_t id) { return TokenText(client, id, skip); },
                     options.request.sampling_params().stop_size() > 0) {}

  // Returns false when nobody reads the output any more.
  bool Print(const v1::GenerateResponse& message) {
    if (palette_.color()) {
      for (const TextSpan& span : attribution_.Add(message)) {
        console_.out << palette_.Source(span.source, Visible(span.text));
      }
    } else {
      console_.out << Visible(message.text());
    }
    console_.out.flush();
    return console_.out.good();
  }

  const Palette& palette() const { return palette_; }

 private:
  std::string Visible(const std::string& text) const {
    return console_.out_is_terminal ? VisibleText(text) : text;
  }

  std::string TokenText(GenerationClient& client, int32_t id, bool skip_special_tokens) {
    const auto known = texts_.find(id);
    if (known != texts_.end()) return known->second;
    const auto text = client.Detokenize({id}, skip_special_tokens);
    return texts_[id] = text.ok() ? *text : "";  // a failure affects only the color
  }

  Console& console_;
  Palette palette_;
  std::map<int32_t, std::string> texts_;
  TextAttribution attribution_;
};

// Returns the request for the other side of --compare: the same seed, with drafting on or off.
v1::GenerateRequest Repeat(const v1::GenerateRequest& request, const v1::Completion& completion,
                           bool drafting) {
  v1::GenerateRequest repeated = request;
  repeated.clear_request_id();
  repeated.mutable_sampling_params()->set_seed(completion.seed());
  v1::SpeculationParams* speculation = repeated.mutable_speculation();
  speculation->set_reproducible(completion.speculation().reproducible());
  if (!drafting) {
    speculation->set_enabled(false);
    speculation->clear_draft_length();
    speculation->clear_drafter();
  }
  return repeated;
}

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
  if (speculation.drafter() == "none") return "the request names no drafter (--drafter none)";
  const auto info = client.GetServerInfo();
  if (!info.ok()) return "the server does not say why";
  if (!info->drafter_problem().empty()) return "no drafter is attached: " + info->drafter_problem();
  if (!info->drafter_attached()) return "the server has no drafter (--draft)";
  return "the server expected no gain from it (--draft-length sets a fixed length)";
}

// The streamed run is not part of the measurement, because printing costs time too. Both sides run
// again without output, in turns.
absl::StatusOr<Comparison> Compare(const v1::GenerateRequest& request,
                                   const v1::GenerateResponse& streamed, GenerationClient& client) {
  const v1::GenerateRequest drafted_request = Repeat(request, streamed.completion(), true);
  const v1::GenerateRequest plain_request = Repeat(request, streamed.completion(), false);
  Comparison comparison;
  RunTotals drafted_totals;
  RunTotals plain_totals;
  std::vector<double> ratios;
  const auto deadline = std::chrono::steady_clock::now() + kCompareBudget;
  for (int pair = 0; pair < kMaxPairs; ++pair) {
    if (pair > 0 && std::chrono::steady_clock::now() > deadline) break;
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
  if (drafted_totals.drafted() == 0) comparison.why_no_drafts = WhyNoDrafts(request, client);
  comparison.drafted_tokens_per_second = drafted_totals.TokensPerSecond();
  comparison.plain_tokens_per_second = plain_totals.TokensPerSecond();
  comparison.speedup = MeanRatio(ratios);
  return comparison;
}

nlohmann::json ToJson(const v1::GenerateResponse& response) {
  google::protobuf::util::JsonPrintOptions print;
  print.preserve_proto_field_names = true;
  print.always_print_primitive_fields = true;
  std::string text;
  // This call cannot fail: the message has no Any, and its strings are valid UTF-8 because it was
  // parsed.
  (void)google::protobuf::util::MessageToJsonString(response, &text, print);
  return nlohmann::json::parse(text);
}

nlohmann::json ToJson(const Comparison& comparison) {
  if (!comparison.why_no_drafts.empty()) return {{"why_no_drafts", comparison.why_no_drafts}};
  nlohmann::json json = {{"drafted_tokens_per_second", comparison.drafted_tokens_per_second},
                         {"plain_tokens_per_second", comparison.plain_tokens_per_second},
                         {"speedup", comparison.speedup.ratio},
                         {"speedup_95_percent", nullptr},  // null: too few pairs
                         {"pairs", comparison.speedup.pairs},
                         {"text_identical", nullptr}};  // null: not promised for such a request
  if (comparison.speedup.pairs >= kLeastPairs) {
    json["speedup_95_percent"] = {comparison.speedup.low, comparison.speedup.high};
  }
  if (comparison.text == Comparison::Text::kIdentical) json["text_identical"] = true;
  if (comparison.text == Comparison::Text::kDiffers) json["text_identical"] = false;
  return json;
}

}  // namespace

int Generate(const GenerateOptions& options, Console& console) {
  const auto prompt = ReadPrompt(options, console);
  if (!prompt.ok()) return PrintError(prompt.status(), console);
  auto opened = ServerSession::Open(options.session, console);
  if (!opened.ok()) return PrintError(opened.status(), console);
  ServerSession& session = **opened;
  GenerationClient& client = session.client();
  const Palette notes(WantsColor(options.color, console.err_is_terminal));
  if (session.start_seconds() > 0 && !options.json) {
    console.err << notes.Dim("server started in " + FormatSeconds(session.start_seconds())) << "\n";
  }

  v1::GenerateRequest request = options.request;
  request.set_prompt(*prompt);
  TokenPrinter printer(options, client, console);
  if (!options.json) {
    if (printer.palette().color()) console.err << printer.palette().Legend() << "\n\n";
    console.err.flush();
    if (options.echo || console.out_is_terminal) {
      console.out << printer.palette().Bold(console.out_is_terminal ? VisibleText(*prompt)
                                                                    : *prompt)
                  << std::flush;
    }
  }
  const auto response = client.Generate(request, [&](const v1::GenerateResponse& message) {
    return options.json || printer.Print(message);
  });
  if (!options.json) console.out << std::endl;
  if (!console.out) return PrintError(Unavailable("standard output is closed"), console);
  if (!response.ok()) return PrintServerError(response.status(), console);
  nlohmann::json json = {{"prompt", *prompt}, {"response", ToJson(*response)}};
  if (!options.json) console.err << "\n" << RenderSummary(*response, notes) << std::flush;

  int exit_code = kExitOk;
  if (options.compare) {
    const auto comparison = Compare(request, *response, client);
    if (!comparison.ok()) return PrintServerError(comparison.status(), console);
    if (!options.json) console.err << "\n" << RenderComparison(*comparison, notes) << std::flush;
    json["comparison"] = ToJson(*comparison);
    if (comparison->text == Comparison::Text::kDiffers || !comparison->why_no_drafts.empty()) {
      exit_code = kExitServerError;
    }
  }
  if (options.json) console.out << json.dump(2) << std::endl;
  return exit_code;
}

}  // namespace tandem::cli
