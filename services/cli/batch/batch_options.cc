#include "services/cli/batch/batch_options.h"

#include <utility>

#include "services/cli/supervisor/server_flags.h"
#include "services/cli/terminal/option_parser.h"

namespace tandem::cli {

namespace {

void BindBatch(FlagParser& parser, BatchOptions& options) {
  parser.BindArgument("FILE",
                      "Each line is a request in OpenAI's batch format: a JSON object with "
                      "custom_id, method, url and body.",
                      /*required=*/true, &options.input);
  parser.Bind("--output", &options.output);
  parser.Bind("--concurrency", &options.concurrency);
  BindSession(parser, options.session);
}

std::string CheckBatch(const FlagParser& parser, BatchOptions& options) {
  return CheckSession(parser, options.session);
}

}  // namespace

Parsed<BatchOptions> ParseBatch(std::vector<std::string> arguments) {
  return ParseOptions<BatchOptions>(
      Program::kBatch,
      "Answers the lines of a file in OpenAI's batch format, for /v1/completions and\n"
      "/v1/chat/completions. The same command goes on where an earlier one was interrupted.",
      std::move(arguments), BindBatch, CheckBatch);
}

}  // namespace tandem::cli
