#include "common/flags/flag_parser.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "common/flags/flag_help.h"
#include "common/flags/foreign_flag.h"
#include "common/flags/suggestion.h"

namespace tandem {

namespace {

[[noreturn]] void AbortBecause(const std::string& reason) {
  std::fprintf(stderr, "The table of flags and the program disagree: %s\n", reason.c_str());
  std::abort();
}

// Returns the names of a flag in CLI11's form: "-n,--max-tokens",
// "--reproducible,!--no-reproducible".
std::string NamesForParser(const Flag& flag) {
  std::string names(flag.name);
  if (!flag.short_name.empty()) names = std::string(flag.short_name) + "," + names;
  if (!flag.negation.empty()) names += ",!" + std::string(flag.negation);
  return names;
}

}  // namespace

struct FlagParser::Implementation {
  struct BoundFlag {
    const Flag* flag = nullptr;
    CLI::Option* option = nullptr;
    // CLI11 stores the value in one of these. Nothing else reads them.
    bool is_set = false;
    std::string text;
    std::vector<std::string> texts;
    // The program's variables.
    std::vector<std::function<absl::Status(const std::string&)>> takers;
  };

  Implementation(Program its_program, std::string its_description)
      : program(its_program),
        description(std::move(its_description)),
        app(description, std::string(ProgramName(program))) {}

  CLI::Option* AddOption(BoundFlag& bound) {
    const Flag& flag = *bound.flag;
    if (flag.kind == FlagKind::kSwitch) return app.add_flag(NamesForParser(flag), bound.is_set);
    if (flag.values == FlagValues::kOne) return app.add_option(NamesForParser(flag), bound.text);
    // An argument after the value does not belong to the flag.
    return app.add_option(NamesForParser(flag), bound.texts)->allow_extra_args(false);
  }

  BoundFlag* Find(std::string_view name) {
    const auto found = std::find_if(flags.begin(), flags.end(),
                                    [&](const auto& bound) { return bound->flag->name == name; });
    return found == flags.end() ? nullptr : found->get();
  }

  bool IsTyped(const BoundFlag& bound) const {
    const std::vector<CLI::Option*>& typed = app.parse_order();
    return std::find(typed.begin(), typed.end(), bound.option) != typed.end();
  }

  static absl::Status Take(const BoundFlag& bound) {
    for (const std::string& result : bound.option->results()) {
      for (const std::string& text : SplitFlagValues(*bound.flag, result)) {
        for (const auto& take : bound.takers) TANDEM_RETURN_IF_ERROR(take(text));
      }
    }
    return absl::OkStatus();
  }

  // Says which argument the program does not take.
  std::string Unknown() const {
    const std::vector<std::string> rest = app.remaining();
    if (rest.empty()) return "an argument is not known";
    std::string word = rest.front();
    if (!word.starts_with("-")) {
      const std::string hint = program == Program::kServe ? "; did you mean --target " + word + "?"
                               : program == Program::kGenerate ? "; put the prompt in quotes"
                                                               : "";
      return "there is one argument too many: \"" + word + "\"" + hint;
    }
    word = word.substr(0, word.find('='));
    std::vector<std::string> names = {"--help", "--help-all"};
    for (const auto& bound : flags) names.emplace_back(bound->flag->name);
    const std::string hint = ForeignFlagHint(word, program);
    return "there is no option \"" + word + "\"" + (hint.empty() ? DidYouMean(word, names) : hint);
  }

  // Hands the values that CLI11 found to the program.
  absl::Status TakeAll() const {
    for (const auto& bound : flags) {
      absl::Status status = Take(*bound);
      if (status.ok()) continue;
      if (IsTyped(*bound)) return status;
      return InvalidArgument(std::string(status.message()) + " (from the environment variable " +
                             FlagVariable(*bound->flag, program) + ")");
    }
    return absl::OkStatus();
  }

  Program program;
  std::string description;
  std::vector<ArgumentHelp> arguments;
  std::string version;
  CLI::App app;
  std::vector<std::unique_ptr<BoundFlag>> flags;
};

FlagParser::FlagParser(Program program, std::string description)
    : implementation_(std::make_unique<Implementation>(program, std::move(description))) {
  CLI::App& app = implementation_->app;
  app.set_help_flag("-h,--help");
  app.set_help_all_flag("--help-all");
  for (const Flag* flag : FlagsOf(program)) {
    auto bound = std::make_unique<Implementation::BoundFlag>();
    bound->flag = flag;
    bound->option = implementation_->AddOption(*bound);
    bound->option->required(flag->required);
    bound->option->envname(FlagVariable(*flag, program));
    implementation_->flags.push_back(std::move(bound));
  }
}

FlagParser::~FlagParser() = default;

const Flag& FlagParser::Find(std::string_view name) const {
  const Flag* flag = FindFlag(name, implementation_->program);
  if (flag == nullptr) {
    AbortBecause(std::string(ProgramName(implementation_->program)) + " binds " +
                 std::string(name) + ", which the table does not give to it");
  }
  return *flag;
}

void FlagParser::CheckTable(const absl::Status& status) {
  if (!status.ok()) AbortBecause("a default is not allowed: " + std::string(status.message()));
}

void FlagParser::OnText(std::string_view name,
                        std::function<absl::Status(const std::string& text)> take) {
  implementation_->Find(Find(name).name)->takers.push_back(std::move(take));
}

void FlagParser::BindHandedOn(FlagTexts* texts) {
  for (const auto& bound : implementation_->flags) {
    if (bound->flag->handed_to.empty()) continue;
    bound->takers.emplace_back([texts, flag = bound->flag](const std::string& text) {
      TANDEM_RETURN_IF_ERROR(CheckFlagValue(*flag, text));
      std::string& kept = (*texts)[std::string(flag->name)];
      const bool adds = flag->values == FlagValues::kCommas && !kept.empty();
      kept = adds ? kept + "," + text : text;
      return absl::OkStatus();
    });
  }
}

void FlagParser::BindArgument(const std::string& name, const std::string& help, bool required,
                              std::string* value) {
  implementation_->app.add_option(name, *value)->required(required);
  implementation_->arguments.push_back({name, help});
}

void FlagParser::SetVersion(const std::string& version) {
  implementation_->version = version;
  implementation_->app.set_version_flag("--version", version);
}

absl::StatusOr<std::optional<std::string>> FlagParser::Parse(std::vector<std::string> arguments) {
  Implementation& self = *implementation_;
  for (const auto& bound : self.flags) {
    if (bound->takers.empty()) {
      AbortBecause(std::string(ProgramName(self.program)) + " does not bind " +
                   std::string(bound->flag->name));
    }
  }
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the end
  try {
    self.app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    return HelpText(self.program, self.description, self.arguments, !self.version.empty(),
                    HelpLength::kShort);
  } catch (const CLI::CallForAllHelp&) {
    return HelpText(self.program, self.description, self.arguments, !self.version.empty(),
                    HelpLength::kAll);
  } catch (const CLI::CallForVersion&) {
    return self.version + "\n";
  } catch (const CLI::ExtrasError&) {
    return InvalidArgument(self.Unknown());
  } catch (const CLI::Error& error) {
    return InvalidArgument(error.what());
  }
  TANDEM_RETURN_IF_ERROR(self.TakeAll());
  return std::nullopt;
}

std::optional<int> FlagParser::ParseOrExitCode(int argc, char** argv) {
  const auto text = Parse(std::vector<std::string>(argv + 1, argv + argc));
  if (!text.ok()) {
    std::cerr << ProgramName(implementation_->program) << ": " << text.status().message()
              << "\nRun with --help for more information.\n";
    return 2;
  }
  if (!text->has_value()) return std::nullopt;
  std::cout << **text << std::flush;
  return 0;
}

bool FlagParser::IsTyped(std::string_view name) const {
  return implementation_->IsTyped(*implementation_->Find(Find(name).name));
}

bool FlagParser::IsGiven(std::string_view name) const {
  return implementation_->Find(Find(name).name)->option->count() > 0;
}

std::vector<std::string> HandedOnArguments(const FlagTexts& texts, Program receiver) {
  std::vector<std::string> arguments;
  for (const auto& [name, text] : texts) {
    const Flag* flag = FindFlag(name, Program::kServe);
    if (flag == nullptr || !flag->handed_to.contains(receiver)) continue;
    const std::string its_name(flag->handed_as.empty() ? flag->name : flag->handed_as);
    if (flag->kind == FlagKind::kSwitch) {
      arguments.push_back(its_name + "=" + text);
    } else {
      arguments.push_back(its_name);
      arguments.push_back(text);
    }
  }
  return arguments;
}

}  // namespace tandem
