// The requests of a load test: the same ones for the same seed, whatever else is measured.
#ifndef TANDEM_SERVICES_CLI_BENCH_SERVE_BENCH_SERVE_WORKLOAD_H_
#define TANDEM_SERVICES_CLI_BENCH_SERVE_BENCH_SERVE_WORKLOAD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/cli/bench/serve/bench_serve_options.h"
#include "services/cli/client/generation_client.h"
#include "tandem/v1/generate.pb.h"

namespace tandem::cli {

struct PlannedRequest {
  v1::GenerateRequest request;
  int cancel_after_tokens = -1;  // the client leaves once it has so many; -1: never
};

class Workload {
 public:
  // Token ids without those that the tokenizer puts in front of every text: these are `beginning`.
  struct Corpus {
    std::vector<int32_t> beginning;
    std::vector<std::vector<int32_t>> prompts;  // at least one, none empty
  };

  // `max_context` bounds prompt and output together: lengths that do not fit are cut, the output's
  // first. INVALID_ARGUMENT when even then there is no room for --shared-prefix.
  static absl::StatusOr<Workload> Create(const BenchServeOptions& options, Corpus corpus,
                                         int max_context);

  // Asks the server for the ids of each prompt.
  static absl::StatusOr<Corpus> Tokenize(const std::vector<std::string>& prompts,
                                         GenerationClient& client);

  // Request number `index`: prompt, lengths, seed and cancelling depend on (seed, index) alone, so
  // that runs of other modes and drafting get the same.
  //
  // Prompts of a drawn length are pieces of 4 to 12 tokens of the corpus, joined: two of them
  // hardly ever begin alike, so that nothing but --shared-prefix is found in a prefix cache.
  PlannedRequest Plan(uint64_t index, const std::string& mode, const std::string& drafting) const;

 private:
  Workload(const BenchServeOptions& options, Corpus corpus, int max_context);

  void AppendPieces(std::mt19937_64& random, size_t length, std::vector<int32_t>& ids) const;

  BenchServeOptions options_;
  Corpus corpus_;
  int max_context_;
  std::vector<int32_t> all_ids_;  // of the corpus
  std::vector<int32_t> prefix_;   // that is shared, `beginning` included
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_SERVE_BENCH_SERVE_WORKLOAD_H_
