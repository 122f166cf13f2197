#include "common/flags/flag_help.h"

#include <sstream>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/flags/flag_value.h"

namespace tandem {

namespace {

constexpr size_t kHelpColumn = 30;
constexpr size_t kLineWidth = 100;

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
                     const std::vector<ArgumentHelp>& arguments, bool has_version) {
  const std::string name(ProgramName(program));
  std::string text = absl::StrCat(description, "\n\nUsage: ", name, " [OPTIONS]");
  for (const ArgumentHelp& argument : arguments) absl::StrAppend(&text, " ", argument.name);
  text += "\n";
  if (!arguments.empty()) text += "\nArguments:\n";
  for (const ArgumentHelp& argument : arguments) {
    text += Wrap(absl::StrCat("  ", argument.name), argument.help);
  }
  std::string_view group;
  for (const Flag* flag : FlagsOf(program)) {
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
  if (has_version) text += Wrap("  --version", "Prints the version.");
  if (IsCommand(program)) {
    text +=
        "\nEvery option can also be set in the environment: --top-p is TANDEM_TOP_P, --compare is\n"
        "TANDEM_COMPARE=true, and so on (--connect is TANDEM_ADDRESS). The command line takes\n"
        "precedence.\n";
  }
  return text;
}

}  // namespace tandem
