#include "services/cli/command_line.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/flags/suggestion.h"

namespace tandem::cli {

namespace {

constexpr char kOverview[] =
    R"(Tandem: lossless speculative decoding as a service. A small draft model guesses tokens, and
the target model checks them. You get exactly the output of the target model, but sooner.

Usage: tandem COMMAND [OPTIONS]

Commands:
  serve        start the router and its two workers, keep them running, serve until Ctrl-C
  generate     stream the completion of a prompt, with each token in the color of its source
  chat         hold a conversation
  batch        answer the lines of a file in OpenAI's batch format
  bench        measure speedup and acceptance over prompts and draft lengths
  bench serve  put the load of many clients on a server: throughput, latencies, limits
  tokenize     print the token ids of a text
  info         print the models and limits of a server
  top          watch a server: tokens per second, acceptance, rounds, events
  healthcheck  exit with 0 when a process is ready
  doctor       say what this machine has and which pair of models would pay on it
  drafter      swap the draft models or the heads of a running server
  index build  make the index of a corpus for the drafter retrieval

Without --connect ADDRESS (or TANDEM_ADDRESS), a command starts a private server, which ends with
the command. Without --target, the small pair of models that comes with Tandem is used.

  tandem generate --compare --temperature 0 "Once upon a time there was a king who"
  tandem serve --target Llama-3.2-3B-Instruct --draft Llama-3.2-1B-Instruct --draft-length 4
  tandem serve --http 127.0.0.1:8080     # for clients of OpenAI's HTTP API
  tandem generate --connect 127.0.0.1:50051 "The three rules of robotics are"

tandem help COMMAND lists the options of a command that people use most, and
tandem COMMAND --help-all lists all of them.
)";

// Parses the arguments of one command with the function `Parse`.
template <auto Parse>
Command ParseAs(std::vector<std::string> arguments) {
  return std::visit([](auto&& parsed) { return Command(std::forward<decltype(parsed)>(parsed)); },
                    Parse(std::move(arguments)));
}

struct CommandEntry {
  const char* name;
  Command (*parse)(std::vector<std::string> arguments);
};
constexpr CommandEntry kCommands[] = {
    {"serve", ParseAs<ParseServe>},
    {"generate", ParseAs<ParseGenerate>},
    {"chat", ParseAs<ParseChat>},
    {"batch", ParseAs<ParseBatch>},
    {"bench", ParseAs<ParseBench>},
    {"tokenize", ParseAs<ParseTokenize>},
    {"info", ParseAs<ParseInfo>},
    {"top", ParseAs<ParseTop>},
    {"healthcheck", ParseAs<ParseHealthcheck>},
    {"doctor", ParseAs<ParseDoctor>},
    {"drafter", ParseAs<ParseDrafter>},
};

UsageError UnknownCommand(const std::string& name) {
  std::vector<std::string> names = {"help", "index"};
  for (const CommandEntry& command : kCommands) names.emplace_back(command.name);
  return UsageError{absl::StrCat("there is no command \"", name, "\"", DidYouMean(name, names),
                                 " (", absl::StrJoin(names, ", "), "; tandem --help says more)")};
}

// tandem help COMMAND is tandem COMMAND --help.
Command ParseHelp(std::vector<std::string> command) {
  if (command.empty()) return ShowText{kOverview};
  command.emplace_back("--help");
  return ParseCommandLine(std::move(command));
}

}  // namespace

Command ParseCommandLine(std::vector<std::string> arguments) {
  if (arguments.empty()) return UsageError{std::string("a command is needed\n\n") + kOverview};
  const std::string name = arguments.front();
  arguments.erase(arguments.begin());
  if (name == "--help" || name == "-h" || name == "--help-all") return ShowText{kOverview};
  if (name == "help") return ParseHelp(std::move(arguments));
  if (name == "--version") return ShowText{std::string("tandem ") + TANDEM_VERSION + "\n"};
  if (name == "bench" && !arguments.empty() && arguments.front() == "serve") {
    arguments.erase(arguments.begin());
    return ParseAs<ParseBenchServe>(std::move(arguments));
  }
  if (name == "index") {
    if (arguments.empty() ||
        (arguments.front() != "build" && !arguments.front().starts_with('-'))) {
      return UsageError{
          "tandem index: the only command is tandem index build CORPUS --output FILE"};
    }
    if (arguments.front() == "build") arguments.erase(arguments.begin());
    return ParseAs<ParseIndexBuild>(std::move(arguments));
  }
  for (const CommandEntry& command : kCommands) {
    if (name == command.name) return command.parse(std::move(arguments));
  }
  return UnknownCommand(name);
}

}  // namespace tandem::cli
