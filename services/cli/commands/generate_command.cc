#include "services/cli/commands/generate_command.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/status.h"
#include "services/cli/commands/comparison.h"
#include "services/cli/commands/race.h"
#include "services/cli/commands/summary.h"
#include "services/cli/stream/text_attribution.h"
#include "services/cli/stream/token_printer.h"
#include "services/cli/terminal/errors.h"
#include "services/cli/terminal/terminal_size.h"
#include "services/cli/terminal/text_file.h"
#include "services/cli/terminal/utf8.h"

namespace tandem::cli {

namespace {

absl::StatusOr<std::string> ReadPrompt(const GenerateOptions& options, Console& console) {
  std::string prompt = options.prompt;
  if (!options.prompt_file.empty()) {
    return ReadTextFile("--prompt-file", options.prompt_file);
  }
  if (prompt == "-") {
    prompt.assign(std::istreambuf_iterator<char>(console.in), {});
  }
  const size_t valid = ValidUtf8Prefix(prompt);
  if (valid != prompt.size()) {
    return InvalidArgument("prompt: byte " + std::to_string(valid) + " is not valid UTF-8");
  }
  if (prompt.empty()) return InvalidArgument("prompt: is empty");
  return prompt;
}

// Runs one side of a race. Colors are found after the stream, because they may take calls.
absl::StatusOr<RaceLane> Record(const std::string& title, const v1::GenerateRequest& request,
                                TokenPrinter& printer, GenerationClient& client) {
  std::vector<std::pair<double, v1::GenerateResponse>> messages;
  const auto begin = std::chrono::steady_clock::now();
  TANDEM_RETURN_IF_ERROR(client
                             .Generate(request,
                                       [&](const v1::GenerateResponse& message) {
                                         const std::chrono::duration<double> time =
                                             std::chrono::steady_clock::now() - begin;
                                         messages.emplace_back(time.count(), message);
                                         return true;
                                       })
                             .status());
  RaceLane lane{.title = title, .steps = {}};
  TextAttribution attribution = printer.NewAttribution();
  for (const auto& [seconds, message] : messages) {
    int num_tokens = message.token_ids_size();
    for (const TextSpan& span : attribution.Add(message)) {
      lane.steps.push_back(
          {seconds, VisibleText(span.text), span.source, std::exchange(num_tokens, 0)});
    }
    if (num_tokens > 0) lane.steps.push_back({seconds, "", v1::TOKEN_SOURCE_PLAIN, num_tokens});
  }
  return lane;
}

// Shows both sides of the comparison on the terminal. Both were recorded, one after the other, and
// are shown slower than they were.
absl::Status ShowRace(const v1::GenerateRequest& request, const v1::GenerateResponse& streamed,
                      TokenPrinter& printer, GenerationClient& client, Console& console) {
  constexpr double kSecondsOnScreen = 6;
  constexpr auto kFrameTime = std::chrono::milliseconds(40);
  constexpr int kMaxHeight = 18;
  constexpr int kLinesBelow = 10;
  constexpr int kLeastWidth = 40;
  constexpr int kLeastHeight = 8;
  const TerminalSize size = GetTerminalSize();
  if (size.width < kLeastWidth || size.height < kLeastHeight) {
    console.err << "The terminal is too small for a race (" << kLeastWidth << " columns and "
                << kLeastHeight << " lines are needed)." << std::endl;
    return absl::OkStatus();
  }
  TANDEM_ASSIGN_OR_RETURN(
      RaceLane plain, Record("without drafts", OneSide(request, streamed, false), printer, client));
  TANDEM_ASSIGN_OR_RETURN(RaceLane drafted,
                          Record("with drafts", OneSide(request, streamed, true), printer, client));
  const int height = std::clamp(size.height - kLinesBelow, 6, kMaxHeight);
  const Race race(std::move(plain), std::move(drafted), size.width, height, printer.palette());
  const double slowdown = std::max(1.0, kSecondsOnScreen / std::max(race.seconds(), 1e-6));
  console.out << "\n"
              << printer.palette().Dim(absl::StrFormat(
                     "The same two streams side by side, %.0f times slower than they were:",
                     slowdown))
              << "\n";
  const auto begin = std::chrono::steady_clock::now();
  for (double at = 0;; std::this_thread::sleep_for(kFrameTime)) {
    console.out << race.Frame(at) << std::flush;
    if (at >= race.seconds() || client.canceled()) break;
    const std::chrono::duration<double> shown = std::chrono::steady_clock::now() - begin;
    at = std::min(shown.count() / slowdown, race.seconds());
    console.out << "\x1b[" << height << "A";  // the next frame begins where this one began
  }
  return client.canceled() ? absl::CancelledError("interrupted") : absl::OkStatus();
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
  const v1::SamplingParams& sampling = request.sampling_params();
  TokenTexts texts(client, !sampling.has_skip_special_tokens() || sampling.skip_special_tokens());
  TokenPrinter printer({.color = WantsColor(options.color, console.out_is_terminal),
                        .may_be_held_back = sampling.stop_size() > 0},
                       texts, console);
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
  if (!options.json)
    console.err << "\n" << RenderSummary(*response, !options.compare, notes) << std::flush;

  int exit_code = kExitOk;
  if (options.compare) {
    const auto comparison = Compare(request, *response, client);
    if (!comparison.ok()) return PrintServerError(comparison.status(), console);
    if (options.race && !options.json && console.out_is_terminal &&
        comparison->why_no_drafts.empty()) {
      const absl::Status shown = ShowRace(request, *response, printer, client, console);
      if (!shown.ok()) return PrintServerError(shown, console);
    }
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
