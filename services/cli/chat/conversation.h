// What was said in a chat.
#ifndef TANDEM_SERVICES_CLI_CHAT_CONVERSATION_H_
#define TANDEM_SERVICES_CLI_CHAT_CONVERSATION_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/v1/generate.pb.h"

namespace tandem::cli {

// The message of the system is kept apart, because it outlives a reset. At most the last message
// of the user has no answer.
class Conversation {
 public:
  // A message that was not answered is replaced.
  void Say(std::string text);
  // Answers the last message of the user. An empty text is not an answer.
  void Answer(std::string text);

  bool has_question() const { return !messages_.empty(); }
  // Takes the last answer away, so that its message can be answered again.
  void TakeAnswerBack();
  // Forgets the oldest message and its answer. Returns false if there is only one message.
  bool ForgetOldest();
  void Reset() { messages_.clear(); }

  void SetSystem(std::string text) { system_ = std::move(text); }  // empty: none
  const std::string& system() const { return system_; }

  v1::Chat ToChat() const;
  // Returns a list of {"role", "content"} in the shape of OpenAI's `messages`.
  std::string ToJson() const;
  // Reads such a list, or an object with the list as its member `messages`. INVALID_ARGUMENT says
  // what is wrong: not JSON, or messages that do not alternate between user and assistant.
  static absl::StatusOr<Conversation> FromJson(const std::string& text);

 private:
  struct Message {
    bool is_answer;
    std::string text;
  };

  std::string system_;
  std::vector<Message> messages_;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_CHAT_CONVERSATION_H_
