#include "services/cli/bench/bench_command.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/status.h"
#include "services/cli/bench/bench_heads.h"
#include "services/cli/bench/bench_report.h"
#include "services/cli/bench/bench_support.h"
#include "services/cli/bench/model_operations.h"
#include "services/cli/supervisor/lookup_names.h"
#include "services/cli/terminal/errors.h"

namespace tandem::cli {

namespace {

v1::GenerateRequest MakeRequest(const BenchOptions& options, const std::string& mode,
                                const BenchCase& measured, const std::string& prompt, int pair) {
  v1::GenerateRequest request;
  request.set_prompt(prompt);
  v1::SamplingParams* sampling = request.mutable_sampling_params();
  sampling->set_max_tokens(options.max_tokens);
  sampling->set_ignore_eos(true);
  if (mode == "greedy") {
    sampling->set_temperature(0);
  } else {
    sampling->set_temperature(options.temperature);
    sampling->set_seed(options.seed + pair);
  }
  v1::SpeculationParams* speculation = request.mutable_speculation();
  speculation->set_reproducible(false);  // a seed alone would turn it on
  speculation->set_enabled(measured.draft_length != 0);
  speculation->set_drafter(measured.drafter);
  if (mode != "greedy" && options.draft_temperature.has_value()) {
    speculation->mutable_draft_sampling()->set_temperature(*options.draft_temperature);
  }
  if (measured.draft_length > 0) speculation->set_draft_length(measured.draft_length);
  if (measured.max_tree_nodes.has_value()) {
    speculation->set_max_tree_nodes(*measured.max_tree_nodes);
  }
  return request;
}

// Returns the drafters to compare that need no swap of heads, as requests name them. `swaps`: heads
// are swapped in for the others.
std::vector<std::string> DraftersOf(const BenchOptions& options, const v1::ServerInfo& info,
                                    bool swaps) {
  std::vector<std::string> drafters;
  const auto add = [&](const std::string& name) {
    const bool is_new = std::find(drafters.begin(), drafters.end(), name) == drafters.end();
    if (is_new && !(swaps && IsSelfDrafter(name))) drafters.push_back(name);
  };
  for (const std::string& name : options.drafters) {
    if (name == "all") {
      for (const std::string& known : info.drafters()) {
        // The prompts of a benchmark predict nothing, and a single draft model has two names.
        const bool has_two_names = info.draft_models_size() <= 1 && known == info.draft_model();
        if (known != "prediction" && !has_two_names) add(known);
      }
    }
    if (name == "all" || name == "auto") add("");
    if (name != "all" && name != "auto") add(name);
  }
  if (options.drafters.empty()) drafters.emplace_back();
  return drafters;
}

// Cases that are measured while the server has the same heads.
using BenchBlock = std::vector<BenchCase>;

// Returns the cases of the drafters. Plain decoding comes first. Each drafter has the lengths in
// ascending order, and the server's choice of a length comes last.
BenchBlock BlockOf(const BenchOptions& options, const std::vector<std::string>& drafters,
                   const std::string& heads) {
  std::vector<int> lengths = options.draft_lengths;
  std::sort(lengths.begin(), lengths.end(),
            [](int a, int b) { return static_cast<unsigned>(a) < static_cast<unsigned>(b); });
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  BenchBlock block = {{.drafter = "", .draft_length = 0, .heads = heads}};
  for (const std::string& drafter : drafters) {
    for (const int length : lengths) {
      if (length == 0) continue;
      BenchCase measured = {.drafter = drafter, .draft_length = length, .heads = heads};
      if (options.max_tree_nodes.empty()) block.push_back(measured);
      for (const int nodes : options.max_tree_nodes) {
        measured.max_tree_nodes = nodes;
        block.push_back(measured);
      }
    }
  }
  return block;
}

// Returns the blocks. What needs no heads is measured without them, and first. Without heads to
// swap, there is one block, with the heads that the server has.
std::vector<BenchBlock> BlocksOf(const BenchOptions& options, const v1::ServerInfo& info,
                                 const std::vector<BenchHeads>& swapped) {
  const std::vector<std::string> drafters = DraftersOf(options, info, !swapped.empty());
  if (swapped.empty()) return {BlockOf(options, drafters, "")};
  std::vector<BenchBlock> blocks;
  if (!drafters.empty()) blocks.push_back(BlockOf(options, drafters, kNoHeads));
  for (const BenchHeads& heads : swapped) {
    blocks.push_back(BlockOf(options, {heads.kind}, heads.name));
  }
  return blocks;
}

class BenchRuns {
 public:
  BenchRuns(const BenchOptions& options, const std::vector<std::string>& prompts,
            GenerationClient& client, HeadsSwitch& heads, Console& console)
      : options_(options), prompts_(prompts), client_(client), heads_(heads), console_(console) {}

  absl::StatusOr<std::vector<BenchCell>> Run(const std::vector<BenchBlock>& blocks) {
    size_t num_cases = 0;
    for (const BenchBlock& block : blocks) num_cases += block.size();
    Progress progress(static_cast<int>((options_.pairs + 1) * num_cases * options_.modes.size()),
                      console_);
    for (const std::string& mode : options_.modes) {
      for (const BenchBlock& block : blocks) {
        if (!block[0].heads.empty()) {
          TANDEM_RETURN_IF_ERROR(heads_.Use(block[0].heads).status());
        }
        TANDEM_RETURN_IF_ERROR(RunBlock(mode, block, progress));
      }
    }
    return std::move(cells_);
  }

 private:
  // Each pair runs plain decoding and every other case of the block on one prompt. The order
  // changes from pair to pair, so that neither a slow drift of the machine nor a position in the
  // order favors a cell.
  absl::Status RunBlock(const std::string& mode, const BenchBlock& block, Progress& progress) {
    const size_t first = cells_.size();
    for (const BenchCase& measured : block) cells_.push_back({mode, measured, {}, {}});
    for (int pair = -1; pair < options_.pairs; ++pair) {  // -1 warms up and does not count
      const std::string& prompt = prompts_[std::max(pair, 0) % prompts_.size()];
      std::vector<double> rates(block.size());
      for (size_t turn = 0; turn < block.size(); ++turn) {
        const size_t i = (turn + std::max(pair, 0)) % block.size();
        progress.Step(absl::StrFormat("%s, %s, draft length %s", mode, DrafterLabel(block[i]),
                                      DraftSizeName(block[i])));
        TANDEM_ASSIGN_OR_RETURN(
            const v1::GenerateResponse response,
            client_.Generate(MakeRequest(options_, mode, block[i], prompt, pair),
                             [](const v1::GenerateResponse&) { return true; }));
        if (pair < 0) continue;
        cells_[first + i].totals.Add(response.completion());
        rates[i] = TokensPerSecond(response.completion());
      }
      for (size_t i = 1; pair >= 0 && i < block.size(); ++i) {
        if (rates[0] > 0 && rates[i] > 0) {
          cells_[first + i].speedups.push_back(rates[i] / rates[0]);
        }
      }
    }
    return absl::OkStatus();
  }

  const BenchOptions& options_;
  const std::vector<std::string>& prompts_;
  GenerationClient& client_;
  HeadsSwitch& heads_;
  Console& console_;
  std::vector<BenchCell> cells_;
};

// Returns the ratio of the operations of the draft model to those of the target, if it is known.
std::optional<double> OperationsRatio(const ModelFolders& models) {
  if (models.drafts.size() != 1) return std::nullopt;
  const auto draft = WeightsPerToken(models.drafts.front().folder);
  const auto target = WeightsPerToken(models.target.folder);
  if (!draft.ok() || !target.ok()) return std::nullopt;
  return *draft / *target;
}

}  // namespace

int Bench(BenchOptions options, const std::string& command_line, Console& console) {
  const auto prompts = ReadPrompts(options.prompts);
  if (!prompts.ok()) return PrintError(prompts.status(), console);
  std::ofstream json_file;
  if (!options.json.empty()) {
    json_file.open(options.json);
    if (!json_file) {
      return PrintError(InvalidArgument("--json: cannot write " + options.json), console);
    }
  }
  const auto plan = PlanHeads(options);
  if (!plan.ok()) return PrintError(plan.status(), console);
  auto session = ServerSession::Open(options.session, console);
  if (!session.ok()) return PrintError(session.status(), console);
  GenerationClient& client = (*session)->client();
  const auto info = client.GetServerInfo();
  if (!info.ok()) return PrintServerError(info.status(), console);
  if (!info->drafter_attached() && options.drafters.empty() && plan->names.empty()) {
    return PrintServerError(
        FailedPrecondition("the server has no draft model: nothing to compare (--drafters names "
                           "drafters that need none)"),
        console);
  }
  HeadsSwitch heads(client);
  std::vector<BenchHeads> swapped;
  if (!plan->names.empty()) {
    const bool wants_all = options.compares_all_heads();
    auto found =
        heads.Find(*plan, wants_all ? std::vector<std::string>() : options.KindsOfHeads(), console);
    if (!found.ok()) return PrintError(found.status(), console);
    swapped = *std::move(found);
  }
  const auto cells =
      BenchRuns(options, *prompts, client, heads, console).Run(BlocksOf(options, *info, swapped));
  if (!cells.ok()) return PrintServerError(cells.status(), console);
  const std::vector<BenchRow> rows = MakeRows(*cells, OperationsRatio((*session)->models()));
  const BenchContext context = {.server = *info,
                                .hardware = Hardware(),
                                .command_line = command_line,
                                .prompts = static_cast<int>(prompts->size()),
                                .max_tokens = options.max_tokens};
  console.out << RenderTable(rows, context,
                             Palette(WantsColor(options.color, console.out_is_terminal)))
              << std::flush;
  if (json_file.is_open()) {
    json_file << ToJson(rows, context).dump(2) << "\n";
    json_file.close();
    if (!json_file) {
      return PrintServerError(Unavailable("--json: writing " + options.json + " failed"), console);
    }
  }
  return kExitOk;
}

}  // namespace tandem::cli
