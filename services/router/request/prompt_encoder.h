// Turns the texts and chats of clients into token ids.
#ifndef TANDEM_SERVICES_ROUTER_REQUEST_PROMPT_ENCODER_H_
#define TANDEM_SERVICES_ROUTER_REQUEST_PROMPT_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/chat/chat_template.h"
#include "common/tokenizer/tokenizer.h"
#include "tandem/v1/generate.pb.h"

namespace tandem {

// Several threads may call all methods at a time. Errors have the status INVALID_ARGUMENT. They
// name the field, the given value and the allowed values.
class PromptEncoder {
 public:
  struct Prompt {
    std::vector<int32_t> ids;
    std::string text;  // what a chat became; empty for a text
    std::vector<std::string> warnings;
  };

  // Texts and chats have at most `max_bytes`. `chat_template` may be the reason for which there is
  // no template. The tokenizer must outlive the encoder.
  PromptEncoder(const Tokenizer* tokenizer, absl::StatusOr<ChatTemplate> chat_template,
                size_t max_bytes)
      : tokenizer_(tokenizer), chat_template_(std::move(chat_template)), max_bytes_(max_bytes) {}

  // `field` is the name of the field that has the text.
  absl::StatusOr<Prompt> EncodeText(const std::string& field, const std::string& text,
                                    bool add_special_tokens) const;

  // The prompt has the beginning-of-text token at most once at its beginning: special tokens are
  // added only if the template did not write that token.
  absl::StatusOr<Prompt> EncodeChat(const v1::Chat& chat, bool add_special_tokens) const;

  // The file of the chat template, without its folder, which clients need not know. Empty: there is
  // none, for the reason that template_problem gives.
  std::string template_name() const;
  std::string template_problem() const;
  // Returns the name of the format of calls that ServerInfo states, if the operator chose `choice`.
  std::string tool_call_format(const std::string& choice) const;
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  absl::Status CheckSize(const std::string& field, size_t bytes) const;

  const Tokenizer* tokenizer_;
  absl::StatusOr<ChatTemplate> chat_template_;
  size_t max_bytes_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_REQUEST_PROMPT_ENCODER_H_
