// The totals of a conversation.
#ifndef TANDEM_SERVICES_CLI_CHAT_CHAT_TOTALS_H_
#define TANDEM_SERVICES_CLI_CHAT_CHAT_TOTALS_H_

#include <cstdint>
#include <map>
#include <string>

#include "services/cli/bench/run_totals.h"
#include "services/cli/terminal/palette.h"
#include "tandem/v1/generate.pb.h"

namespace tandem::cli {

class ChatTotals {
 public:
  void Add(const v1::Completion& completion);
  // An answer that was stopped has no report of its costs.
  void AddStopped(int64_t tokens);

  // Returns the lines of /stats.
  std::string Render(const Palette& palette) const;

 private:
  struct OfDrafter {
    int64_t drafted = 0;
    int64_t accepted = 0;
  };

  RunTotals run_;
  int64_t answers_ = 0;
  int64_t stopped_ = 0;
  int64_t stopped_tokens_ = 0;
  int64_t prompt_tokens_ = 0;
  int64_t cached_tokens_ = 0;
  double first_token_seconds_ = 0;
  std::map<std::string, OfDrafter> drafters_;
};

// Returns what one answer cost, in a line without its newline.
std::string AnswerCosts(const v1::Completion& completion);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_CHAT_CHAT_TOTALS_H_
