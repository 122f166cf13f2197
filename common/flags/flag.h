// The description of a flag: its name, values, default and help, and the programs that take it.
#ifndef TANDEM_COMMON_FLAGS_FLAG_H_
#define TANDEM_COMMON_FLAGS_FLAG_H_

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// A program that takes flags: an executable, or a command of `tandem`.
enum class Program : uint8_t {
  kRouter,
  kVerifier,
  kDraft,
  kGateway,
  kServe,
  kGenerate,
  kChat,
  kBatch,
  kBench,
  kBenchServe,
  kTokenize,
  kInfo,
  kTop,
  kHealthcheck,
  kDoctor,
  kIndexBuild,
  kDrafterCommand,
};
inline constexpr int kNumPrograms = 17;

// Returns, for example, "tandem-router", or "tandem bench serve" for a command.
std::string_view ProgramName(Program program);

// Returns true for a command of `tandem`.
bool IsCommand(Program program);

// A set of programs.
class Programs {
 public:
  constexpr Programs() = default;
  constexpr Programs(Program program)  // NOLINT(google-explicit-constructor): a set of one program
      : bits_(uint32_t{1} << static_cast<int>(program)) {}

  constexpr bool contains(Program program) const { return (bits_ & Programs(program).bits_) != 0; }
  constexpr bool empty() const { return bits_ == 0; }

  friend constexpr Programs operator|(Programs a, Programs b) {
    a.bits_ |= b.bits_;
    return a;
  }

 private:
  uint32_t bits_ = 0;
};

constexpr Programs operator|(Program a, Program b) { return Programs(a) | Programs(b); }

enum class FlagKind : uint8_t {
  kSwitch,   // takes no value, or =true or =false
  kText,     // any text: a name, an address, a file
  kChoice,   // one of `words`
  kInteger,  // a whole number
  kNumber,   // a decimal number
  kBytes,    // a whole number of bytes. The units K, M, G and T are powers of 1024
};

enum class FlagValues : uint8_t {
  kOne,
  kCommas,    // one or more, with commas between them
  kRepeated,  // one each time that the flag is given
};

// Two flags of different programs may have one name. No program takes both.
struct Flag {
  std::string_view name;             // with its dashes: "--max-queue"
  std::string_view short_name = {};  // "-n", or empty
  std::string_view negation = {};    // name of the switch that says the opposite, or empty
  Programs programs;                 // the programs that take the flag
  std::string_view group;            // its subject: a heading of help texts and of the guide

  FlagKind kind = FlagKind::kText;
  // The name of the value in help texts: "FILE", or a unit such as "SECONDS".
  std::string_view value = {};
  FlagValues values = FlagValues::kOne;
  bool required = false;
  // The default, in the form that a person would write. Empty: there is no default, or the program
  // computes one.
  std::string_view fallback = {};
  std::string_view computed = {};  // description of the default that the program computes, or empty

  // Limits of a number.
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool more_than_least = false;  // `least` itself is not allowed
  bool or_zero = false;          // 0 is allowed too
  // Allowed words, with | between them: all values of a kChoice, or additional values of a number.
  std::string_view words = {};

  // The part after the prefix in the name of the environment variable. Empty: this part is made
  // from `name`.
  std::string_view variable = {};
  bool has_variable = true;

  // The processes to which `tandem serve` (or a private server) hands the flag on unchanged.
  Programs handed_to = {};
  std::string_view handed_as = {};  // name of the flag there, if it differs

  std::string_view help;  // complete sentences; the default and the limits are added to them
};

// Returns the table.
std::span<const Flag> AllFlags();

// Returns the flags of a program, in the order of the table.
std::vector<const Flag*> FlagsOf(Program program);

// Returns null if the program does not take a flag of that name.
const Flag* FindFlag(std::string_view name, Program program);

// Returns the environment variable that sets the flag of the program: "TANDEM_MAX_QUEUE",
// "TANDEM_DRAFT_MAX_SLOTS". Empty: there is none.
std::string FlagVariable(const Flag& flag, Program program);

}  // namespace tandem

#endif  // TANDEM_COMMON_FLAGS_FLAG_H_
