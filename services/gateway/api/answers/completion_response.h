// Writes the answers of POST /v1/completions and POST /v1/chat/completions.
#ifndef TANDEM_SERVICES_GATEWAY_API_ANSWERS_COMPLETION_RESPONSE_H_
#define TANDEM_SERVICES_GATEWAY_API_ANSWERS_COMPLETION_RESPONSE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "services/gateway/api/answers/answer_usage.h"
#include "services/gateway/api/answers/choice_writer.h"
#include "services/gateway/api/fields/request_draft.h"
#include "tandem/v1/generate.pb.h"

namespace tandem::gateway {

// Collects the choices of one request, and writes them as one answer or as events of a stream. The
// bodies have the members that OpenAI's have, and `speculation` and `warnings` beside them. The
// choices of the first prompt come first, then those of the second one.
class CompletionResponse {
 public:
  struct Header {
    std::string id;
    int64_t created = 0;  // seconds since 1970
    std::string model;
    std::string tool_call_format;  // the model's; empty: none that is known
  };
  CompletionResponse(Header header, const AnswerOptions& options, size_t num_prompts);

  // The texts of this prompt's choices begin with it. Called before their first message.
  void SetEcho(size_t prompt, const std::string& text);

  // Adds a message of a prompt's stream. Returns the events that it gives in a stream, and nothing
  // if the answer is no stream or the message has nothing to show.
  std::string Add(size_t prompt, const v1::GenerateResponse& message);

  // Whether every choice has its completion.
  bool is_complete() const { return num_complete_ == choices_.size(); }
  const AnswerUsage& usage() const { return usage_; }

  // Returns the whole answer. PRECOND: is_complete, and the answer is no stream.
  std::string Body() const;
  // Returns the last events of a stream. PRECOND: is_complete.
  std::string LastEvents() const;

 private:
  struct Choice {
    std::unique_ptr<ChoiceWriter> writer;
    std::string json;  // the choice, once it is complete; not for a stream
    bool is_complete = false;
  };

  std::unique_ptr<ChoiceWriter> MakeWriter(size_t index, const std::string& echo) const;
  // Returns the members that every body has before the choices.
  std::string Begin() const;

  const Header header_;
  const AnswerOptions options_;
  const std::string begin_;  // the same for every body
  std::vector<Choice> choices_;
  size_t num_complete_ = 0;
  AnswerUsage usage_;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_ANSWERS_COMPLETION_RESPONSE_H_
