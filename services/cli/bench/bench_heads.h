// The heads that a benchmark compares. A server has one set of heads at a time, so they are swapped
// in one after the other.
#ifndef TANDEM_SERVICES_CLI_BENCH_BENCH_HEADS_H_
#define TANDEM_SERVICES_CLI_BENCH_BENCH_HEADS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/cli/bench/bench_options.h"
#include "services/cli/client/draft_models_client.h"
#include "services/cli/client/generation_client.h"
#include "services/cli/supervisor/runtime_directory.h"
#include "services/cli/terminal/console.h"

namespace tandem::cli {

// The folders of heads that a private server may swap in.
struct HeadsPlan {
  std::vector<std::string> names;  // empty: the server keeps the heads that it starts with
  std::string source;              // where they are, for messages: "--heads-folder DIR"
  // Heads that do not work are an error. False: somebody gave a folder of many, and they are left
  // out.
  bool must_work = true;
  std::unique_ptr<RuntimeDirectory> links;  // a folder of links to the folders of --heads, or null
};

// Finds the heads that the options ask for, and lets the private server of the options swap them:
// the folders of --heads if it has several, those in --heads-folder, or those of the embedded pair.
// INVALID_ARGUMENT names the flag.
absl::StatusOr<HeadsPlan> PlanHeads(BenchOptions& options);

// A folder of heads, and the drafter that they are, such as "eagle".
struct BenchHeads {
  std::string name;
  std::string kind;
};

// Swaps the heads of a server that this process started.
class HeadsSwitch {
 public:
  // `generation` says where the server is, and whether the user wants the command to end.
  explicit HeadsSwitch(const GenerationClient& generation);

  // Waits until the verifier has the heads. Returns their kind, which is empty for kNoHeads.
  // FAILED_PRECONDITION says why the verifier cannot have them.
  absl::StatusOr<std::string> Use(const std::string& name);

  // Loads each of the heads once, so that a mistake ends the command before it measures. Returns
  // those whose kind is one of `kinds`, or all if `kinds` is empty. INVALID_ARGUMENT: heads do not
  // work, or there are none of a kind.
  absl::StatusOr<std::vector<BenchHeads>> Find(const HeadsPlan& plan,
                                               const std::vector<std::string>& kinds,
                                               Console& console);

 private:
  const GenerationClient& generation_;
  DraftModelsClient client_;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_BENCH_HEADS_H_
