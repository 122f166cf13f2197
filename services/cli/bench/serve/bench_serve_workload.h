// The requests of a load test. A seed gives the same requests for everything that is compared.
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
  int cancel_after_tokens = -1;  // the client leaves when it has this many tokens; -1: never
};

class Workload {
 public:
  // Token ids without the special tokens that the tokenizer puts before every text. These are in
  // `beginning`.
  struct Corpus {
    std::vector<int32_t> beginning;
    std::vector<std::vector<int32_t>> prompts;  // at least one, none empty
  };

  // `max_context` bounds prompt and output together. Lengths that do not fit are cut, the output's
  // length first. INVALID_ARGUMENT: --shared-prefix does not fit even then.
  static absl::StatusOr<Workload> Create(const BenchServeOptions& options, Corpus corpus,
                                         int max_context);

  // Asks the server for the token ids of each prompt.
  static absl::StatusOr<Corpus> Tokenize(const std::vector<std::string>& prompts,
                                         GenerationClient& client);

  // Returns request number `index`. Its prompt, lengths, seed and cancellation depend only on
  // (seed, index), so that all modes and kinds of drafting get the same requests.
  //
  // A prompt of a drawn length is made of pieces of 4 to 12 tokens of the corpus. Two such prompts
  // hardly ever begin with the same tokens. A prefix cache therefore finds only the
  // --shared-prefix.
  PlannedRequest Plan(uint64_t index, const std::string& mode, const std::string& drafting) const;

 private:
  Workload(const BenchServeOptions& options, Corpus corpus, int max_context);

  void AppendPieces(std::mt19937_64& random, size_t length, std::vector<int32_t>& ids) const;

  BenchServeOptions options_;
  Corpus corpus_;
  int max_context_;
  std::vector<int32_t> all_ids_;  // all token ids of the corpus
  std::vector<int32_t> prefix_;   // the shared prefix, with `beginning`
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BENCH_SERVE_BENCH_SERVE_WORKLOAD_H_
