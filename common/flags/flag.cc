#include "common/flags/flag.h"

#include <cctype>

namespace tandem {

std::string_view ProgramName(Program program) {
  switch (program) {
    case Program::kRouter:
      return "tandem-router";
    case Program::kVerifier:
      return "tandem-verifier";
    case Program::kDraft:
      return "tandem-draft";
    case Program::kGateway:
      return "tandem-gateway";
    case Program::kServe:
      return "tandem serve";
    case Program::kGenerate:
      return "tandem generate";
    case Program::kChat:
      return "tandem chat";
    case Program::kBatch:
      return "tandem batch";
    case Program::kBench:
      return "tandem bench";
    case Program::kBenchServe:
      return "tandem bench serve";
    case Program::kTokenize:
      return "tandem tokenize";
    case Program::kInfo:
      return "tandem info";
    case Program::kTop:
      return "tandem top";
    case Program::kHealthcheck:
      return "tandem healthcheck";
    case Program::kDoctor:
      return "tandem doctor";
    case Program::kIndexBuild:
      return "tandem index build";
    case Program::kDrafterCommand:
      return "tandem drafter";
  }
  return "";
}

bool IsCommand(Program program) { return program >= Program::kServe; }

std::vector<const Flag*> FlagsOf(Program program) {
  std::vector<const Flag*> flags;
  for (const Flag& flag : AllFlags()) {
    if (flag.programs.contains(program)) flags.push_back(&flag);
  }
  return flags;
}

const Flag* FindFlag(std::string_view name, Program program) {
  for (const Flag& flag : AllFlags()) {
    if (flag.name == name && flag.programs.contains(program)) return &flag;
  }
  return nullptr;
}

std::string FlagVariable(const Flag& flag, Program program) {
  if (!flag.has_variable) return "";
  std::string variable = program == Program::kVerifier  ? "TANDEM_VERIFIER_"
                         : program == Program::kDraft   ? "TANDEM_DRAFT_"
                         : program == Program::kGateway ? "TANDEM_GATEWAY_"
                                                        : "TANDEM_";
  const std::string_view stem = flag.variable.empty() ? flag.name.substr(2) : flag.variable;
  for (const char c : stem) {
    variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return variable;
}

}  // namespace tandem
