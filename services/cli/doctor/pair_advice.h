// Which pairs of target and draft would pay on a machine, by the model of docs/controller.md: the
// expected tokens of a round, divided by the round's time.
#ifndef TANDEM_SERVICES_CLI_DOCTOR_PAIR_ADVICE_H_
#define TANDEM_SERVICES_CLI_DOCTOR_PAIR_ADVICE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::cli {

// Two models that share a vocabulary.
struct ModelPair {
  std::string target;
  std::string draft;
  uint64_t target_bytes = 0;  // weights that a pass reads, in bytes
  uint64_t draft_bytes = 0;
  double alpha = 0;       // assumed probability that a tested draft token is accepted
  bool is_users = false;  // the pair that the user named
};

// Pairs that people serve, with BF16 weights.
std::vector<ModelPair> KnownPairs();

// What the times of a round depend on.
struct RoundModel {
  double bytes_per_second = 0;  // at which weights are read
  // The messages between the router and one worker. A plain round has one such exchange, and a
  // round with a draft has two.
  double exchange_seconds = 0;
  double extra_row_fraction = 0;  // what each row after the first adds to a pass of the target
};

struct PairAdvice {
  ModelPair pair;
  bool fits = false;         // the weights of both fit into the memory
  double plain_seconds = 0;  // a token without drafts, with its exchange
  int draft_length = 0;      // the best one; 0: no draft pays
  double speedup = 1;        // at this length, over plain decoding
};

// Finds the draft length from 0 to 16 with the most tokens per second, for one stream.
PairAdvice AdvisePair(const ModelPair& pair, const RoundModel& round, uint64_t memory_bytes);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_DOCTOR_PAIR_ADVICE_H_
