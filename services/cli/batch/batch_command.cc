#include "services/cli/batch/batch_command.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "services/cli/batch/batch_client.h"
#include "services/cli/batch/batch_input.h"
#include "services/cli/batch/batch_output.h"
#include "services/cli/batch/batch_progress.h"
#include "services/cli/batch/batch_runner.h"
#include "services/cli/terminal/errors.h"

namespace tandem::cli {

namespace {

constexpr int kMostConcurrency = 256;

// Returns the counts before the first line is sent.
BatchCounts CountLines(const BatchInput& input, const BatchOutput& output) {
  BatchCounts counts;
  counts.lines = static_cast<int64_t>(input.entries().size() + input.problems().size());
  counts.failed = static_cast<int64_t>(input.problems().size());
  counts.refused = counts.failed;
  for (const BatchInput::Entry& entry : input.entries()) {
    if (output.answered().contains(entry.custom_id)) ++counts.earlier;
  }
  return counts;
}

// Returns the exit code.
int Report(const absl::Status& status, const BatchCounts& counts, BatchProgress& progress,
           Console& console) {
  progress.End(counts);
  if (!status.ok()) {
    const int64_t left = counts.lines - counts.earlier - counts.answered - counts.failed;
    const int exit_code = PrintServerError(status, console);
    progress.Say(absl::StrCat(left, " lines were not answered. The same command goes on with them",
                              counts.failed > 0 ? ". " : ".", BatchFailureAdvice(counts)));
    return exit_code;
  }
  if (counts.failed == 0) return kExitOk;
  progress.Say(BatchFailureAdvice(counts));
  return kExitServerError;
}

}  // namespace

int Batch(const BatchOptions& options, Console& console) {
  std::error_code ignored;
  if (std::filesystem::equivalent(options.input, options.output, ignored)) {
    return PrintError(InvalidArgument("--output: is FILE itself, and another file is wanted"),
                      console);
  }
  if (std::filesystem::equivalent(options.input, BatchReplacementPath(options.output), ignored)) {
    return PrintError(
        InvalidArgument("--output: with .new added, this is FILE, which would be deleted, and "
                        "another name is wanted"),
        console);
  }
  const auto input = BatchInput::Open(options.input);
  if (!input.ok()) return PrintError(input.status(), console);
  const auto output = BatchOutput::Open(options.output);
  if (!output.ok()) return PrintError(output.status(), console);
  auto opened = ServerSession::Open(options.session, console);
  if (!opened.ok()) return PrintError(opened.status(), console);
  ServerSession& session = **opened;
  GenerationClient& questions = session.client();
  const auto served = questions.GetServerInfo();
  if (!served.ok()) return PrintServerError(served.status(), console);

  BatchProgress progress(console);
  for (const BatchInput::Problem& problem : (*input)->problems()) {
    progress.Say(absl::StrCat("line ", problem.number, ": ", problem.message));
  }
  const BatchCounts counts = CountLines(**input, **output);
  if (counts.earlier > 0) {
    progress.Say(absl::StrCat(counts.earlier, " lines were answered before"));
  }
  const int by_slots = std::clamp(2 * served->max_slots(), 1, kMostConcurrency);
  BatchClient client(questions.address(), questions.security());
  BatchRunner runner({.input = **input,
                      .output = **output,
                      .client = client,
                      .questions = questions,
                      .served = *served,
                      .concurrency = options.concurrency > 0 ? options.concurrency : by_slots},
                     counts);
  session.SetSignalHandler([&runner](int /*signal*/) {
    runner.Stop();
    return false;
  });
  const absl::Status status = runner.Run(progress);
  session.SetSignalHandler(nullptr);
  return Report(status, runner.counts(), progress, console);
}

}  // namespace tandem::cli
