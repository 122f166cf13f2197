// Renders a conversation into a prompt with a model's own chat template, as transformers'
// apply_chat_template does.
#ifndef TANDEM_COMMON_CHAT_CHAT_TEMPLATE_H_
#define TANDEM_COMMON_CHAT_CHAT_TEMPLATE_H_

#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/chat/chat_messages.h"
#include "common/chat/jinja_template.h"
#include "common/chat/template_files.h"
#include "common/chat/tool_call_format.h"
#include "nlohmann/json.hpp"

namespace tandem {

// One conversation. Keys keep their order, because templates print tools as they came. A
// nlohmann::json converts to this, with its keys in the order of the alphabet.
struct ChatInput {
  // A list of messages: role, content (a text, or a list of text parts), name, tool_calls,
  // tool_call_id, and whatever else the template reads.
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  // A list of tools in OpenAI's shape, or null. An empty list counts as null.
  nlohmann::ordered_json tools;
  // An object of further variables (enable_thinking …), or null. They hide all other variables,
  // except the messages, the tools and add_generation_prompt.
  nlohmann::ordered_json kwargs;
  // Whether the prompt ends with the beginning of an answer.
  bool add_generation_prompt = true;
  // What strftime_now prints. If missing: the present time.
  std::optional<std::time_t> now;
};

// Several threads may render at a time.
class ChatTemplate {
 public:
  // Loads the template `file`, or else that of a model folder (common/chat/template_files.h), and
  // compiles it. Fails with NOT_FOUND if there is none; the message names --chat-template. Fails
  // with INVALID_ARGUMENT for a template that does not compile, with its place and line.
  static absl::StatusOr<ChatTemplate> Load(const std::filesystem::path& folder,
                                           const std::optional<std::filesystem::path>& file = {},
                                           const ChatTemplateLimits& limits = {});
  // The same for files that were read already.
  static absl::StatusOr<ChatTemplate> Make(const TemplateFiles& files,
                                           const ChatTemplateLimits& limits = {});

  // Returns the prompt. Where it begins with the text of bos_token or not is up to the template, so
  // the caller tokenizes it without adding special tokens if BeginsWithBos says true. Fails with
  // INVALID_ARGUMENT, and the messages have no path: for messages of the wrong shape, with what
  // raise_exception says, for what the template cannot render, and beyond a limit.
  //
  // Arguments of tool calls that are texts with an object are given to the template as objects. If
  // it fails then, the texts are given. The role "developer" becomes "system" for a template that
  // does not know it.
  absl::StatusOr<std::string> Render(const ChatInput& input) const;

  // Whether a rendered prompt begins with the text of bos_token.
  bool BeginsWithBos(std::string_view prompt) const;

  // Empty if the model has none.
  const std::string& bos_token() const { return bos_token_; }
  const std::string& eos_token() const { return eos_token_; }

  // Where the template was found, for messages to the operator.
  const std::string& place() const { return place_; }

  // Whether the template says something about tools, so that a model may learn of them.
  bool shows_tools() const { return shows_tools_; }

  // See DetectToolCallFormat. Empty: none that is known.
  std::string_view tool_call_format() const { return tool_call_format_; }

 private:
  ChatTemplate(const TemplateFiles& files, JinjaTemplate plain)
      : special_tokens_(files.special_tokens), place_(files.place), plain_(std::move(plain)) {}

  nlohmann::ordered_json Variables(const ChatInput& input) const;
  absl::StatusOr<nlohmann::ordered_json> Messages(const ChatInput& input,
                                                  ToolArguments arguments) const;

  nlohmann::ordered_json special_tokens_;
  std::string bos_token_;
  std::string eos_token_;
  std::string place_;
  std::string_view tool_call_format_;
  bool knows_developers_ = false;
  bool shows_tools_ = false;
  JinjaTemplate plain_;
  std::optional<JinjaTemplate> with_tools_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_CHAT_CHAT_TEMPLATE_H_
