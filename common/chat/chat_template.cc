#include "common/chat/chat_template.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"

namespace tandem {
namespace {

using OrderedJson = nlohmann::ordered_json;

// The name of the template for requests with tools, where a model has several.
constexpr char kToolTemplate[] = "tool_use";

absl::StatusOr<JinjaTemplate> Compile(const std::string& source, const TemplateFiles& files,
                                      const ChatTemplateLimits& limits) {
  absl::StatusOr<JinjaTemplate> compiled = JinjaTemplate::Compile(source, limits);
  if (compiled.ok()) return compiled;
  return absl::Status(compiled.status().code(),
                      absl::StrCat(files.place, ": ", compiled.status().message(),
                                   "; --chat-template FILE takes another one"));
}

absl::StatusOr<std::string> DefaultTemplate(const TemplateFiles& files) {
  const auto found = files.templates.find("default");
  if (found != files.templates.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [name, source] : files.templates) names.push_back(name);
  return InvalidArgument(absl::StrCat(files.place, ": want a template named \"default\", got ",
                                      absl::StrJoin(names, ", "),
                                      "; --chat-template FILE takes another one"));
}

std::string TokenText(const OrderedJson& tokens, const char* name) {
  const auto found = tokens.find(name);
  return found == tokens.end() ? std::string() : found->get<std::string>();
}

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::Load(const std::filesystem::path& folder,
                                                const std::optional<std::filesystem::path>& file,
                                                const ChatTemplateLimits& limits) {
  TANDEM_ASSIGN_OR_RETURN(const TemplateFiles files, TemplateFiles::Read(folder, file));
  if (files.templates.empty()) {
    return NotFound(
        "the model has no chat template, neither chat_template.jinja nor chat_template in "
        "tokenizer_config.json (the server's --chat-template FILE gives it one)");
  }
  return Make(files, limits);
}

absl::StatusOr<ChatTemplate> ChatTemplate::Make(const TemplateFiles& files,
                                                const ChatTemplateLimits& limits) {
  TANDEM_ASSIGN_OR_RETURN(const std::string source, DefaultTemplate(files));
  TANDEM_ASSIGN_OR_RETURN(JinjaTemplate plain, Compile(source, files, limits));
  ChatTemplate result(files, std::move(plain));
  const auto with_tools = files.templates.find(kToolTemplate);
  if (with_tools != files.templates.end()) {
    TANDEM_ASSIGN_OR_RETURN(result.with_tools_, Compile(with_tools->second, files, limits));
  }
  result.bos_token_ = TokenText(files.special_tokens, "bos_token");
  result.eos_token_ = TokenText(files.special_tokens, "eos_token");
  result.tool_call_format_ =
      DetectToolCallFormat(with_tools == files.templates.end() ? source : with_tools->second);
  result.knows_developers_ = absl::StrContains(source, "developer");
  result.shows_tools_ = with_tools != files.templates.end() || absl::StrContains(source, "tools");
  return result;
}

OrderedJson ChatTemplate::Variables(const ChatInput& input) const {
  OrderedJson variables = special_tokens_;
  variables["documents"] = nullptr;
  if (input.kwargs.is_object()) {
    for (const auto& [key, value] : input.kwargs.items()) variables[key] = value;
  }
  variables["add_generation_prompt"] = input.add_generation_prompt;
  return variables;
}

absl::StatusOr<OrderedJson> ChatTemplate::Messages(const ChatInput& input,
                                                   ToolArguments arguments) const {
  TANDEM_ASSIGN_OR_RETURN(OrderedJson messages, NormalizeMessages(input.messages, arguments));
  for (OrderedJson& message : messages) {
    if (!knows_developers_ && message["role"] == "developer") message["role"] = "system";
  }
  return messages;
}

absl::StatusOr<std::string> ChatTemplate::Render(const ChatInput& input) const {
  if (!input.kwargs.is_null() && !input.kwargs.is_object()) {
    return InvalidArgument(
        absl::StrCat("chat_template_kwargs: want an object, got ", input.kwargs.type_name()));
  }
  OrderedJson variables = Variables(input);
  TANDEM_ASSIGN_OR_RETURN(variables["tools"], NormalizeTools(input.tools));
  TANDEM_ASSIGN_OR_RETURN(variables["messages"], Messages(input, ToolArguments::kObjects));
  const bool has_tools = !variables["tools"].is_null();
  const JinjaTemplate& chosen = has_tools && with_tools_.has_value() ? *with_tools_ : plain_;
  const std::time_t now = input.now.value_or(std::time(nullptr));
  bool fits_other_values = false;
  absl::StatusOr<std::string> prompt = chosen.Render(variables, now, &fits_other_values);
  if (prompt.ok() || !fits_other_values || !HasTextArguments(input.messages)) return prompt;
  // The template appends the arguments to a text.
  TANDEM_ASSIGN_OR_RETURN(variables["messages"], Messages(input, ToolArguments::kTexts));
  return chosen.Render(variables, now);
}

bool ChatTemplate::BeginsWithBos(std::string_view prompt) const {
  return !bos_token_.empty() && prompt.substr(0, bos_token_.size()) == bos_token_;
}

}  // namespace tandem
