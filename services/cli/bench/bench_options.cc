#include "services/cli/bench/bench_options.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "services/cli/supervisor/lookup_names.h"
#include "services/cli/supervisor/server_flags.h"
#include "services/cli/terminal/option_parser.h"

namespace tandem::cli {

namespace {

struct BenchArguments {
  BenchOptions options;
  std::vector<std::string> draft_lengths;  // numbers, or "auto"
};

void BindBench(FlagParser& parser, BenchArguments& arguments) {
  BenchOptions& options = arguments.options;
  parser.Bind("--prompts", &options.prompts);
  parser.BindList("--draft-lengths", &arguments.draft_lengths);
  parser.BindList("--max-tree-nodes", &options.max_tree_nodes);
  parser.BindList("--drafters", &options.drafters);
  parser.BindList("--modes", &options.modes);
  parser.Bind("--pairs", &options.pairs);
  parser.Bind("--max-tokens", &options.max_tokens);
  parser.Bind("--temperature", &options.temperature);
  parser.OnValue<float>("--draft-temperature", [&](float v) { options.draft_temperature = v; });
  parser.Bind("--seed", &options.seed);
  parser.Bind("--json", &options.json);
  BindColor(parser, options.color);
  BindSession(parser, options.session);
}

}  // namespace

std::vector<std::string> BenchOptions::KindsOfHeads() const {
  std::vector<std::string> kinds;
  for (const std::string& name : drafters) {
    const bool is_new = std::find(kinds.begin(), kinds.end(), name) == kinds.end();
    if (is_new && IsSelfDrafter(name)) kinds.push_back(name);
  }
  return kinds;
}

bool BenchOptions::compares_all_heads() const {
  return std::find(drafters.begin(), drafters.end(), "all") != drafters.end();
}

Parsed<BenchOptions> ParseBench(std::vector<std::string> arguments) {
  auto parsed = ParseOptions<BenchArguments>(
      Program::kBench,
      "Measures prompts × draft lengths × modes against plain decoding in interleaved pairs, and\n"
      "shows the predictions of theory. docs/cli.md says how each number is computed.",
      std::move(arguments), BindBench, [](const FlagParser& parser, BenchArguments& given) {
        return CheckSession(parser, given.options.session);
      });
  if (auto* show = std::get_if<ShowText>(&parsed)) return std::move(*show);
  if (auto* error = std::get_if<UsageError>(&parsed)) return std::move(*error);
  auto& [options, draft_lengths] = std::get<BenchArguments>(parsed);
  for (const std::string& name : options.drafters) {
    if (IsSelfDrafter(name)) options.session.server.self_drafter = name;
  }
  options.draft_lengths.clear();
  for (const std::string& text : draft_lengths) {
    options.draft_lengths.push_back(text == "auto" ? kAutoDraftLength : std::stoi(text));
  }
  return std::move(options);
}

}  // namespace tandem::cli
