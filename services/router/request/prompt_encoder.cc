#include "services/router/request/prompt_encoder.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "services/router/request/chat_input.h"

namespace tandem {

std::string PromptEncoder::template_name() const {
  return chat_template_.ok() ? std::filesystem::path(chat_template_->place()).filename().string()
                             : std::string();
}

std::string PromptEncoder::template_problem() const {
  if (chat_template_.ok()) return "";
  const absl::Status& status = chat_template_.status();
  if (absl::IsNotFound(status)) return std::string(status.message());
  return "the model's chat template does not compile (the router's log says why, and "
         "--chat-template takes another one)";
}

std::string PromptEncoder::tool_call_format(const std::string& choice) const {
  if (choice == "none" || !chat_template_.ok()) return "";
  return choice == "auto" ? std::string(chat_template_->tool_call_format()) : choice;
}

absl::Status PromptEncoder::CheckSize(const std::string& field, size_t bytes) const {
  if (bytes <= max_bytes_) return absl::OkStatus();
  return InvalidArgument(
      absl::StrCat(field, ": got ", bytes, " bytes, allowed: at most ", max_bytes_, " bytes"));
}

absl::StatusOr<PromptEncoder::Prompt> PromptEncoder::EncodeText(const std::string& field,
                                                                const std::string& text,
                                                                bool add_special_tokens) const {
  TANDEM_RETURN_IF_ERROR(CheckSize(field, text.size()));
  Prompt prompt;
  TANDEM_ASSIGN_OR_RETURN(prompt.ids, tokenizer_->Encode(text, add_special_tokens));
  return prompt;
}

absl::StatusOr<PromptEncoder::Prompt> PromptEncoder::EncodeChat(const v1::Chat& chat,
                                                                bool add_special_tokens) const {
  if (!chat_template_.ok()) {
    return InvalidArgument("chat: got messages, allowed: a prompt, because " + template_problem());
  }
  TANDEM_RETURN_IF_ERROR(CheckSize("chat", chat.ByteSizeLong()));
  TANDEM_ASSIGN_OR_RETURN(const ChatInput input, ToChatInput(chat));
  absl::StatusOr<std::string> text = chat_template_->Render(input);
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        absl::StrCat("chat: the model's chat template does not take it: ",
                                     text.status().message()));
  }
  if (text->size() > max_bytes_) {
    return InvalidArgument(absl::StrCat("chat: got messages that become a prompt of ", text->size(),
                                        " bytes, allowed: at most ", max_bytes_, " bytes"));
  }
  const bool has_bos = chat_template_->BeginsWithBos(*text);
  Prompt prompt;
  TANDEM_ASSIGN_OR_RETURN(prompt.ids, tokenizer_->Encode(*text, add_special_tokens && !has_bos));
  prompt.text = *std::move(text);
  if (!input.tools.empty() && !chat_template_->shows_tools()) {
    prompt.warnings.emplace_back(
        "tools: the model does not learn of them, because its chat template does not show tools");
  }
  return prompt;
}

}  // namespace tandem
