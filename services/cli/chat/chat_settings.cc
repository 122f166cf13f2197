#include "services/cli/chat/chat_settings.h"

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/flags/flag.h"
#include "common/flags/flag_value.h"
#include "common/flags/suggestion.h"
#include "common/status.h"

namespace tandem::cli {

namespace {

constexpr char kDefaultWord[] = "default";
constexpr char kNoDrafter[] = "none";

struct Setting {
  std::string name;
  std::function<absl::Status(const std::string& value, const v1::ServerInfo& served,
                             ChatSettings* settings)>
      change;
  // Returns an empty text while the default holds.
  std::function<std::string(const ChatSettings& settings)> show;
  std::function<void(ChatSettings* settings)> clear;
};

v1::SamplingParams* PartOf(ChatSettings* settings, const v1::SamplingParams* /*type*/) {
  return settings->request.mutable_sampling_params();
}
v1::SpeculationParams* PartOf(ChatSettings* settings, const v1::SpeculationParams* /*type*/) {
  return settings->request.mutable_speculation();
}
const v1::SamplingParams& PartOf(const ChatSettings& settings, const v1::SamplingParams* /*type*/) {
  return settings.request.sampling_params();
}
const v1::SpeculationParams& PartOf(const ChatSettings& settings,
                                    const v1::SpeculationParams* /*type*/) {
  return settings.request.speculation();
}

// The command line has a flag for each of these settings, with its limits.
Flag FlagOf(const std::string& setting, std::string_view name_in_errors) {
  std::string name = "--" + setting;
  std::replace(name.begin(), name.end(), '_', '-');
  Flag flag = *FindFlag(name, Program::kChat);
  flag.name = name_in_errors;
  return flag;
}

std::string ValueText(bool value) { return value ? "true" : "false"; }
std::string ValueText(float value) { return absl::StrFormat("%g", value); }
template <std::integral Value>
std::string ValueText(Value value) {
  return std::to_string(value);
}

// A field of one of the request's messages.
template <typename Params, typename Value>
struct RequestField {
  void (Params::*set)(Value);
  Value (Params::*get)() const;
  bool (Params::*has)() const;
  void (Params::*clear)();
};
// Some compilers do not deduce these by themselves.
template <typename Params, typename Value>
RequestField(void (Params::*)(Value), Value (Params::*)() const, bool (Params::*)() const,
             void (Params::*)()) -> RequestField<Params, Value>;

template <typename Params, typename Value>
Setting FieldSetting(const std::string& name, const RequestField<Params, Value>& field,
                     int32_t (v1::ServerInfo::*most)() const = nullptr) {
  constexpr const Params* kType = nullptr;
  return {.name = name,
          .change =
              [=](const std::string& text, const v1::ServerInfo& served, ChatSettings* settings) {
                Flag flag = FlagOf(name, name);
                if (most != nullptr && (served.*most)() > 0) flag.most = (served.*most)();
                Value value{};
                TANDEM_RETURN_IF_ERROR(ParseFlagValue(flag, text, &value));
                (PartOf(settings, kType)->*field.set)(value);
                return absl::OkStatus();
              },
          .show = [=](const ChatSettings& settings) -> std::string {
            const Params& params = PartOf(settings, kType);
            return (params.*field.has)() ? ValueText((params.*field.get)()) : "";
          },
          .clear = [=](ChatSettings* settings) { (PartOf(settings, kType)->*field.clear)(); }};
}

void ClearDrafter(ChatSettings* settings) {
  settings->request.mutable_speculation()->clear_drafter();
  settings->request.mutable_speculation()->clear_enabled();
}

Setting DrafterSetting() {
  return {.name = "drafter",
          .change = [](const std::string& text, const v1::ServerInfo& served,
                       ChatSettings* settings) -> absl::Status {
            std::vector<std::string> allowed = {kNoDrafter};
            allowed.insert(allowed.end(), served.drafters().begin(), served.drafters().end());
            if (std::find(allowed.begin(), allowed.end(), text) == allowed.end()) {
              return InvalidArgument(absl::StrCat(
                  "drafter: got \"", text, "\", allowed: ", absl::StrJoin(allowed, ", "), ", or ",
                  kDefaultWord, " for the server's choice", DidYouMean(text, allowed)));
            }
            ClearDrafter(settings);
            if (text == kNoDrafter) {
              settings->request.mutable_speculation()->set_enabled(false);
            } else {
              settings->request.mutable_speculation()->set_drafter(text);
            }
            return absl::OkStatus();
          },
          .show = [](const ChatSettings& settings) -> std::string {
            const v1::SpeculationParams& params = settings.request.speculation();
            return params.has_enabled() && !params.enabled() ? kNoDrafter : params.drafter();
          },
          .clear = ClearDrafter};
}

Setting ColorsSetting() {
  return {
      .name = "colors",
      .change = [](const std::string& text, const v1::ServerInfo& /*served*/,
                   ChatSettings* settings) -> absl::Status {
        if (text != "auto" && text != "always" && text != "never") {
          return InvalidArgument("colors: got \"" + text + "\", allowed: auto, always or never");
        }
        settings->color = text == "always"  ? ColorMode::kAlways
                          : text == "never" ? ColorMode::kNever
                                            : ColorMode::kAuto;
        return absl::OkStatus();
      },
      .show = [](const ChatSettings& settings) -> std::string {
        return settings.color == ColorMode::kAlways  ? "always"
               : settings.color == ColorMode::kNever ? "never"
                                                     : "";
      },
      .clear = [](ChatSettings* settings) { settings->color = ColorMode::kAuto; }};
}

Setting TextSetting(const std::string& name, std::string ChatSettings::*text,
                    absl::Status (*check)(const std::string& name, const std::string& text)) {
  return {
      .name = name,
      .change =
          [=](const std::string& value, const v1::ServerInfo& /*served*/, ChatSettings* settings) {
            if (check != nullptr) TANDEM_RETURN_IF_ERROR(check(name, value));
            settings->*text = value;
            return absl::OkStatus();
          },
      .show = [=](const ChatSettings& settings) { return settings.*text; },
      .clear = [=](ChatSettings* settings) { (settings->*text).clear(); }};
}

const std::vector<Setting>& AllSettings() {
  using Sampling = v1::SamplingParams;
  using Speculation = v1::SpeculationParams;
#define TANDEM_FIELD(Params, name, ...)                                                     \
  FieldSetting(#name, RequestField{&Params::set_##name, &Params::name, &Params::has_##name, \
                                   &Params::clear_##name} __VA_OPT__(, ) __VA_ARGS__)
  static const std::vector<Setting> kSettings = {
      TANDEM_FIELD(Sampling, temperature),
      TANDEM_FIELD(Sampling, top_p),
      TANDEM_FIELD(Sampling, top_k),
      TANDEM_FIELD(Sampling, min_p),
      TANDEM_FIELD(Sampling, repetition_penalty),
      TANDEM_FIELD(Sampling, presence_penalty),
      TANDEM_FIELD(Sampling, frequency_penalty),
      TANDEM_FIELD(Sampling, seed),
      TANDEM_FIELD(Sampling, max_tokens),
      DrafterSetting(),
      TANDEM_FIELD(Speculation, draft_length, &v1::ServerInfo::max_draft_length),
      TANDEM_FIELD(Speculation, max_tree_nodes, &v1::ServerInfo::max_tree_nodes),
      TANDEM_FIELD(Speculation, reproducible),
      TextSetting("system", &ChatSettings::system, nullptr),
      TextSetting("template_kwargs", &ChatSettings::template_kwargs, CheckTemplateKwargs),
      ColorsSetting()};
#undef TANDEM_FIELD
  return kSettings;
}

// INVALID_ARGUMENT: there is no such setting.
absl::StatusOr<const Setting*> FindSetting(const std::string& name) {
  std::vector<std::string> names;
  for (const Setting& setting : AllSettings()) {
    if (setting.name == name) return &setting;
    names.push_back(setting.name);
  }
  return InvalidArgument(
      absl::StrCat("there is no setting ", name, DidYouMean(name, names), " (/set lists them)"));
}

std::string SettingLine(const Setting& setting, const ChatSettings& settings) {
  const std::string value = setting.show(settings);
  return absl::StrFormat("  %-20s%s\n", setting.name,
                         value.empty() ? std::string(kDefaultWord) : VisibleText(value));
}

}  // namespace

absl::Status CheckTemplateKwargs(const std::string& name, const std::string& text) {
  if (nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false).is_object()) {
    return absl::OkStatus();
  }
  return InvalidArgument(name + ": got \"" + text +
                         "\", allowed: a JSON object such as {\"enable_thinking\": false}");
}

absl::Status ChangeSetting(const std::string& name, const std::string& value,
                           const v1::ServerInfo& served, ChatSettings* settings) {
  TANDEM_ASSIGN_OR_RETURN(const Setting* const setting, FindSetting(name));
  if (value == kDefaultWord) {
    setting->clear(settings);
    return absl::OkStatus();
  }
  return setting->change(value, served, settings);
}

absl::StatusOr<std::string> ShowSetting(const std::string& name, const ChatSettings& settings) {
  TANDEM_ASSIGN_OR_RETURN(const Setting* const setting, FindSetting(name));
  return SettingLine(*setting, settings);
}

std::string ListSettings(const ChatSettings& settings) {
  std::string lines;
  for (const Setting& setting : AllSettings()) lines += SettingLine(setting, settings);
  return lines;
}

}  // namespace tandem::cli
