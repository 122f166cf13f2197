#include "services/cli/bench/serve/bench_serve_options.h"

#include <utility>

#include "common/status.h"
#include "services/cli/supervisor/server_flags.h"
#include "services/cli/terminal/option_parser.h"

namespace tandem::cli {

namespace {

void BindLength(FlagParser& parser, const std::string& name,
                const std::function<void(LengthDistribution)>& set) {
  parser.OnText(name, [=](const std::string& text) {
    const auto length = LengthDistribution::Parse(text);
    if (!length.ok()) {
      return InvalidArgument(name + ": " + std::string(length.status().message()));
    }
    set(*length);
    return absl::OkStatus();
  });
}

void BindLoad(FlagParser& parser, BenchServeOptions& options) {
  parser.BindList("--clients", &options.clients);
  parser.BindList("--rate", &options.rates);
  parser.Bind("--requests", &options.requests);
  parser.Bind("--seconds", &options.seconds);
  parser.Bind("--connections", &options.connections);
  parser.Bind("--warm-up", &options.warm_up_seconds);
  parser.OnValue<double>("--most-stolen",
                         [&options](double percent) { options.most_stolen = percent / 100; });
  BindLength(parser, "--prompt-lengths",
             [&options](LengthDistribution length) { options.prompt_length = length; });
  BindLength(parser, "--output-lengths",
             [&options](LengthDistribution length) { options.output_length = length; });
  parser.Bind("--shared-prefix", &options.shared_prefix);
  parser.Bind("--cancel-fraction", &options.cancel_fraction);
}

void BindBenchServe(FlagParser& parser, BenchServeOptions& options) {
  BindLoad(parser, options);
  parser.Bind("--prompts", &options.prompts);
  parser.BindList("--modes", &options.modes);
  parser.BindList("--drafting", &options.drafting);
  parser.Bind("--draft-length", &options.draft_length);
  parser.Bind("--pairs", &options.pairs);
  parser.Bind("--temperature", &options.temperature);
  parser.Bind("--seed", &options.seed);
  parser.Bind("--json", &options.json);
  BindColor(parser, options.color);
  BindSession(parser, options.session);
}

std::string CheckBenchServe(const FlagParser& parser, BenchServeOptions& options) {
  if (options.requests > 0 && options.seconds > 0) {
    return "--requests and --seconds both end a run: give one or the other";
  }
  if (options.warm_up_seconds > 0 && options.seconds == 0) {
    return "--warm-up comes before --seconds: give both, or neither";
  }
  return CheckSession(parser, options.session);
}

}  // namespace

Parsed<BenchServeOptions> ParseBenchServe(std::vector<std::string> arguments) {
  return ParseOptions<BenchServeOptions>(
      Program::kBenchServe,
      "Puts a load of many clients on a server, with and without drafting in interleaved pairs, "
      "and\n"
      "shows throughput, latencies and their limits. docs/cli.md says how each number is\n"
      "computed.",
      std::move(arguments), BindBenchServe, CheckBenchServe);
}

}  // namespace tandem::cli
