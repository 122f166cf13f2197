#include "common/flags/flag_help.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/flags/flag_value.h"

namespace tandem {

namespace {

constexpr size_t kHelpColumn = 30;
constexpr size_t kLineWidth = 100;

// The flags that people use most, for the programs that have many.
struct ShortHelp {
  Program program;
  std::array<std::string_view, 5> flags;
  std::string_view also;  // some of the others, for the line about --help-all
};
constexpr ShortHelp kShortHelps[] = {
    {Program::kServe,
     {"--target", "--draft", "--listen", "--draft-length", "--max-slots"},
     "--drafters, --heads, --admin, --threads and --tls-certificate"},
    {Program::kGenerate,
     {"--target", "--draft", "--max-tokens", "--temperature", "--compare"},
     "--connect, --drafter, --seed, --top-p and --json"},
    {Program::kChat,
     {"--target", "--draft", "--connect", "--system", "--temperature"},
     "--max-tokens, --drafter, --seed, --template-kwargs and --no-history"},
    {Program::kBatch,
     {"--target", "--draft", "--connect", "--output", "--concurrency"},
     "--token-file and --tls-ca"},
    {Program::kBench,
     {"--target", "--draft", "--connect", "--draft-lengths", "--json"},
     "--drafters, --heads, --pairs and --max-tokens"},
    {Program::kBenchServe,
     {"--target", "--draft", "--connect", "--clients", "--json"},
     "--rates and --pairs"},
    {Program::kTokenize,
     {"--target", "--connect", "--pieces", "--no-special-tokens", "--token-file"},
     "--tls-ca"},
    {Program::kInfo, {"--target", "--draft", "--connect", "--token-file", "--verbose"}, "--tls-ca"},
};

// Null: the program has only one help text.
const ShortHelp* FindShortHelp(Program program) {
  for (const ShortHelp& help : kShortHelps) {
    if (help.program == program) return &help;
  }
  return nullptr;
}

// Breaks `text` into lines that begin at kHelpColumn. `line` is the beginning of the first one.
std::string Wrap(std::string line, const std::string& text) {
  std::string lines;
  const std::string indent(kHelpColumn, ' ');
  if (line.size() + 2 > kHelpColumn) {
    lines = line + "\n";
    line = indent;
  }
  line.resize(kHelpColumn, ' ');
  std::istringstream words(text);
  std::string word;
  while (words >> word) {
    if (line.size() > kHelpColumn && line.size() + 1 + word.size() > kLineWidth) {
      lines += line + "\n";
      line = indent;
    }
    if (line.size() > kHelpColumn) line += ' ';
    line += word;
  }
  return lines + line + "\n";
}

// Returns, for example, "  -n,--max-tokens TOKENS".
std::string Names(const Flag& flag) {
  std::string names = "  ";
  if (!flag.short_name.empty()) absl::StrAppend(&names, std::string(flag.short_name), ",");
  names += flag.name;
  if (!flag.negation.empty()) absl::StrAppend(&names, ",", std::string(flag.negation));
  const std::string_view value =
      flag.value.empty() && flag.kind == FlagKind::kChoice ? flag.words : flag.value;
  if (!value.empty()) absl::StrAppend(&names, " ", std::string(value));
  return names;
}

// Returns true if the allowed values need a sentence: words that the placeholder does not show, or
// limits that a user may exceed.
bool SaysWhatIsAllowed(const Flag& flag) {
  if (flag.kind != FlagKind::kInteger && flag.kind != FlagKind::kNumber) return false;
  return !flag.words.empty() || flag.or_zero || flag.more_than_least || flag.most < 1e18 ||
         flag.least > 0;
}

}  // namespace

std::string FlagSentences(const Flag& flag) {
  std::string text(flag.help);
  if (flag.required) text += " This flag is required.";
  if (SaysWhatIsAllowed(flag)) absl::StrAppend(&text, " Allowed: ", AllowedValues(flag), ".");
  const std::string fallback(flag.fallback.empty() ? flag.computed : flag.fallback);
  if (!fallback.empty()) absl::StrAppend(&text, " Default: ", fallback, ".");
  return text;
}

std::string HelpText(Program program, const std::string& description,
                     const std::vector<ArgumentHelp>& arguments, bool has_version,
                     HelpLength length) {
  const ShortHelp* const short_help =
      length == HelpLength::kShort ? FindShortHelp(program) : nullptr;
  const std::string name(ProgramName(program));
  std::string text = absl::StrCat(description, "\n\nUsage: ", name, " [OPTIONS]");
  for (const ArgumentHelp& argument : arguments) absl::StrAppend(&text, " ", argument.name);
  text += "\n";
  if (!arguments.empty()) text += "\nArguments:\n";
  for (const ArgumentHelp& argument : arguments) {
    text += Wrap(absl::StrCat("  ", argument.name), argument.help);
  }
  std::string_view group;
  size_t num_left_out = 0;
  for (const Flag* flag : FlagsOf(program)) {
    if (short_help != nullptr && std::find(short_help->flags.begin(), short_help->flags.end(),
                                           flag->name) == short_help->flags.end()) {
      ++num_left_out;
      continue;
    }
    if (flag->group != group) absl::StrAppend(&text, "\n", std::string(flag->group), ":\n");
    group = flag->group;
    std::string sentences = FlagSentences(*flag);
    const std::string variable = FlagVariable(*flag, program);
    // The last lines of a command's help state the rule once for all flags.
    if (!IsCommand(program) && !variable.empty()) {
      absl::StrAppend(&sentences, " Environment: ", variable, ".");
    }
    text += Wrap(Names(*flag), sentences);
  }
  absl::StrAppend(&text, "\nHelp:\n", Wrap("  -h,--help", "Prints this text."));
  if (FindShortHelp(program) != nullptr) {
    text +=
        Wrap("  --help-all", num_left_out == 0 ? "Prints all options."
                                               : absl::StrCat("Prints all options: these and ",
                                                              num_left_out, " more, such as ",
                                                              std::string(short_help->also), "."));
  }
  if (has_version) text += Wrap("  --version", "Prints the version.");
  if (IsCommand(program) && short_help == nullptr) {
    text +=
        "\nEvery option can also be set in the environment: --top-p is TANDEM_TOP_P, --compare is\n"
        "TANDEM_COMPARE=true, and so on (--connect is TANDEM_ADDRESS). The command line takes\n"
        "precedence.\n";
  }
  return text;
}

}  // namespace tandem
