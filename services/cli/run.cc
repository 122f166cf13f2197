#include "services/cli/run.h"

#include <variant>

#include "absl/strings/str_join.h"
#include "services/cli/batch/batch_command.h"
#include "services/cli/bench/bench_command.h"
#include "services/cli/bench/serve/bench_serve_command.h"
#include "services/cli/chat/chat_command.h"
#include "services/cli/command_line.h"
#include "services/cli/commands/generate_command.h"
#include "services/cli/commands/healthcheck_command.h"
#include "services/cli/commands/inspect_command.h"
#include "services/cli/commands/serve_command.h"
#include "services/cli/doctor/doctor_command.h"
#include "services/cli/drafter/drafter_command.h"
#include "services/cli/index/index_command.h"
#include "services/cli/terminal/errors.h"

namespace tandem::cli {

namespace {

struct Runner {
  Console& console;
  const std::vector<std::string>& arguments;

  int operator()(const ShowText& show) const {
    console.out << show.text << std::flush;
    return kExitOk;
  }
  int operator()(const UsageError& error) const {
    return PrintError(absl::InvalidArgumentError(error.message), console);
  }
  int operator()(const ServeArguments& serve) const {
    return Serve(serve.server, serve.color, console);
  }
  int operator()(const GenerateOptions& options) const { return Generate(options, console); }
  int operator()(const ChatOptions& options) const { return Chat(options, console); }
  int operator()(const BatchOptions& options) const { return Batch(options, console); }
  int operator()(const BenchOptions& options) const {
    return Bench(options, "tandem " + absl::StrJoin(arguments, " "), console);
  }
  int operator()(const BenchServeOptions& options) const {
    return BenchServe(options, "tandem " + absl::StrJoin(arguments, " "), console);
  }
  int operator()(const TokenizeOptions& options) const { return Tokenize(options, console); }
  int operator()(const InfoArguments& info) const { return Info(info.session, console); }
  int operator()(const TopOptions& options) const { return Top(options, console); }
  int operator()(const HealthcheckOptions& options) const { return Healthcheck(options, console); }
  int operator()(const DoctorOptions& options) const { return Doctor(options, console); }
  int operator()(const IndexOptions& options) const { return BuildIndex(options, console); }
  int operator()(const DrafterOptions& options) const { return ManageDrafters(options, console); }
};

}  // namespace

int Run(const std::vector<std::string>& arguments, Console& console) {
  return std::visit(Runner{console, arguments}, ParseCommandLine(arguments));
}

}  // namespace tandem::cli
