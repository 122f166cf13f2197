#include "common/flags/flag_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "common/flags/flag.h"
#include "common/flags/flag_value.h"

namespace tandem {

namespace {

const char* KindName(FlagKind kind) {
  switch (kind) {
    case FlagKind::kSwitch:
      return "switch";
    case FlagKind::kText:
      return "text";
    case FlagKind::kChoice:
      return "choice";
    case FlagKind::kInteger:
      return "integer";
    case FlagKind::kNumber:
      return "number";
    case FlagKind::kBytes:
      return "bytes";
  }
  return "";
}

const char* ValuesName(FlagValues values) {
  switch (values) {
    case FlagValues::kOne:
      return "one";
    case FlagValues::kCommas:
      return "commas";
    case FlagValues::kRepeated:
      return "repeated";
  }
  return "";
}

nlohmann::ordered_json ToJson(const Flag& flag) {
  nlohmann::ordered_json json;
  const auto add_text = [&json](const char* key, std::string_view text) {
    if (!text.empty()) json[key] = std::string(text);
  };
  add_text("name", flag.name);
  add_text("short_name", flag.short_name);
  add_text("negation", flag.negation);
  add_text("group", flag.group);
  json["kind"] = KindName(flag.kind);
  add_text("value", flag.value);
  json["values"] = ValuesName(flag.values);
  json["required"] = flag.required;
  add_text("default", flag.fallback);
  add_text("computed_default", flag.computed);
  if (std::isfinite(flag.least)) {
    json[flag.more_than_least ? "exclusive_minimum" : "minimum"] = flag.least;
  }
  if (std::isfinite(flag.most)) json["maximum"] = flag.most;
  if (flag.or_zero) json["or_zero"] = true;
  if (!flag.words.empty()) json["words"] = FlagWords(flag);
  add_text("allowed", AllowedValues(flag));
  add_text("help", flag.help);
  for (int i = 0; i < kNumPrograms; ++i) {
    const auto program = static_cast<Program>(i);
    const std::string name(ProgramName(program));
    if (flag.programs.contains(program)) json["programs"][name] = FlagVariable(flag, program);
    if (flag.handed_to.contains(program)) {
      json["handed_to"][name] = std::string(flag.handed_as.empty() ? flag.name : flag.handed_as);
    }
  }
  return json;
}

}  // namespace

std::string FlagTableJson() {
  nlohmann::ordered_json flags = nlohmann::ordered_json::array();
  for (const Flag& flag : AllFlags()) flags.push_back(ToJson(flag));
  return nlohmann::ordered_json{{"flags", flags}}.dump(1);
}

}  // namespace tandem
