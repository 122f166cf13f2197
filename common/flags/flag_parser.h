// Binds the flags of a program to its variables, and parses its command line and environment.
#ifndef TANDEM_COMMON_FLAGS_FLAG_PARSER_H_
#define TANDEM_COMMON_FLAGS_FLAG_PARSER_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/flags/flag.h"
#include "common/flags/flag_value.h"

namespace tandem {

// The given texts of flags, by the names of the flags.
using FlagTexts = std::map<std::string, std::string>;

// Every flag that the table gives to the program must be bound before Parse, and no other flag may
// be bound. Otherwise the process aborts with a message, because the program and the table
// disagree.
//
// Variables must outlive Parse. A value from the command line takes precedence over one from the
// environment. An environment variable that is empty counts as not set.
class FlagParser {
 public:
  // `description` says in the help text what the program does.
  FlagParser(Program program, std::string description);
  ~FlagParser();
  FlagParser(const FlagParser&) = delete;
  FlagParser& operator=(const FlagParser&) = delete;

  // *value gets the default of the table now, if there is one, and the given value in Parse.
  template <typename T>
  void Bind(std::string_view name, T* value) {
    const Flag& flag = Find(name);
    if (!flag.fallback.empty()) {
      CheckTable(ParseFlagValue(flag, std::string(flag.fallback), value));
    }
    OnText(name,
           [&flag, value](const std::string& text) { return ParseFlagValue(flag, text, value); });
  }

  // Does the same for a flag with several values. Given values replace the default.
  template <typename T>
  void BindList(std::string_view name, std::vector<T>* values) {
    const Flag& flag = Find(name);
    const auto append = [&flag, values](const std::string& text) {
      T value{};
      TANDEM_RETURN_IF_ERROR(ParseFlagValue(flag, text, &value));
      values->push_back(std::move(value));
      return absl::OkStatus();
    };
    values->clear();
    if (!flag.fallback.empty()) {
      for (const std::string& text : SplitFlagValues(flag, std::string(flag.fallback))) {
        CheckTable(append(text));
      }
    }
    OnText(name, [values, append, given = false](const std::string& text) mutable {
      if (!given) values->clear();
      given = true;
      return append(text);
    });
  }

  // Calls `take` with each given value, and not with a default.
  template <typename T>
  void OnValue(std::string_view name, std::function<void(const T& value)> take) {
    const Flag& flag = Find(name);
    OnText(name, [&flag, take = std::move(take)](const std::string& text) {
      T value{};
      TANDEM_RETURN_IF_ERROR(ParseFlagValue(flag, text, &value));
      take(value);
      return absl::OkStatus();
    });
  }

  // Calls `take` with the text of each given value. Parse returns an error of `take`.
  void OnText(std::string_view name, std::function<absl::Status(const std::string& text)> take);

  // Stores the given texts of all flags that the table hands on to other processes. These flags
  // count as bound.
  void BindHandedOn(FlagTexts* texts);

  // Binds an argument without dashes.
  void BindArgument(const std::string& name, const std::string& help, bool required,
                    std::string* value);

  // Adds --version, which prints `version`.
  void SetVersion(const std::string& version);

  // Returns a text to print instead of running the program, if the arguments ask for help or the
  // version. INVALID_ARGUMENT says what is wrong with the arguments or the environment. `arguments`
  // do not include the name of the program.
  absl::StatusOr<std::optional<std::string>> Parse(std::vector<std::string> arguments);

  // Does the same for a main function: prints the text or the error. Returns the exit code with
  // which the program must end (0 after help, 2 after an error), or nothing if the program must
  // run.
  std::optional<int> ParseOrExitCode(int argc, char** argv);

  // After Parse: true if the command line itself has the flag. Its value may also come from the
  // environment.
  bool IsTyped(std::string_view name) const;
  // True if the command line or the environment gave the flag.
  bool IsGiven(std::string_view name) const;

 private:
  struct Implementation;

  const Flag& Find(std::string_view name) const;       // aborts if the program does not take it
  static void CheckTable(const absl::Status& status);  // aborts if the table is wrong

  std::unique_ptr<Implementation> implementation_;
};

// Returns the arguments for `receiver` that `tandem serve` makes of its own flags.
std::vector<std::string> HandedOnArguments(const FlagTexts& texts, Program receiver);

}  // namespace tandem

#endif  // TANDEM_COMMON_FLAGS_FLAG_PARSER_H_
