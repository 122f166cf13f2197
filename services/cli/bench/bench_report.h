// The results of a benchmark, beside the predictions that theory makes from them.
#ifndef TANDEM_SERVICES_CLI_BENCH_BENCH_REPORT_H_
#define TANDEM_SERVICES_CLI_BENCH_BENCH_REPORT_H_

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "services/cli/bench/predictions.h"
#include "services/cli/bench/run_totals.h"
#include "services/cli/terminal/palette.h"
#include "tandem/v1/generate.pb.h"

namespace tandem::cli {

// A draft length that stands for the server's choice in each round.
inline constexpr int kAutoDraftLength = -1;

// The name of no heads, in a swap of heads.
inline constexpr char kNoHeads[] = "none";

// What is compared with plain decoding.
struct BenchCase {
  std::string drafter;   // as a request names it; empty: the server's choice
  int draft_length = 0;  // 0: plain decoding; may be kAutoDraftLength
  // Tokens of a tree, as a request limits them. None: the request does not.
  std::optional<int> max_tree_nodes = std::nullopt;
  // Name of the heads that are swapped in, or kNoHeads. Empty: those that the server has anyway.
  std::string heads = {};
};
// Returns "auto" or the drafter, or "–" for plain decoding, and the name of the heads if it is not
// that of the drafter.
std::string DrafterLabel(const BenchCase& measured);
// Returns "auto" or the draft length, and "/" with the largest number of tokens of a tree.
std::string DraftSizeName(const BenchCase& measured);

// The sums over all runs of one mode and case.
struct BenchCell {
  std::string mode;
  BenchCase measured;
  RunTotals totals;
  // Ratios of tokens/s to plain decoding's in the same pair. Empty for draft length 0.
  std::vector<double> speedups;
};

// How each number is computed from the sums over a cell (docs/cli.md):
//   plain step    verify seconds of plain decoding / its rounds
//   draft step    draft seconds / draft tokens, catching up included
//   c             draft step / plain step
//   verify round  (verify seconds - plain rounds * plain step) / rounds with a draft;
//                 such a round has draft_length + 1 rows
//   overhead      (transfer + router seconds) / rounds
//   limit         tokens per pass * plain step / (draft + verify seconds of a pass)
struct BenchRow {
  BenchRow(const BenchCell& cell, const RunTotals& plain, std::optional<double> operations_ratio);

  std::string mode;
  BenchCase measured;
  RunTotals totals;
  RatioInterval speedup;
  double limit = 0;       // the speedup without messages and the router
  double cost_ratio = 0;  // c
  double rows_cost = 0;   // verify round / plain step; Theorem 3.8 assumes 1
  RoundCosts costs{};
  // The predictions assume a draft of constant length in every round, because the theorems do. A
  // server's choice of lengths has none, a lookup has a draft in some rounds only, and a tree is no
  // chain. Heads may guess fewer tokens than a draft may have, so their mean length counts.
  bool has_predictions() const;
  double predicted_speedup = 0;             // Theorem 3.8
  double predicted_speedup_measured = 0;    // with the measured cost of a round
  std::optional<double> operations_factor;  // Theorem 3.11; empty if the models' sizes are unknown
};

// Makes the rows of every mode in which plain decoding was measured. Each is compared with plain
// decoding while the server had the same heads.
std::vector<BenchRow> MakeRows(const std::vector<BenchCell>& cells,
                               std::optional<double> operations_ratio);

struct BenchContext {
  v1::ServerInfo server;
  std::string hardware;  // "AMD EPYC 7B13, 2 threads"
  std::string command_line;
  int prompts = 0;
  int max_tokens = 0;
};

std::string RenderTable(const std::vector<BenchRow>& rows, const BenchContext& context,
                        const Palette& palette);
nlohmann::json ToJson(const std::vector<BenchRow>& rows, const BenchContext& context);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_BENCH_REPORT_H_
