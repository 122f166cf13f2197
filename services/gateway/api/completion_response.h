// Writes the answers of POST /v1/completions.
#ifndef TANDEM_SERVICES_GATEWAY_API_COMPLETION_RESPONSE_H_
#define TANDEM_SERVICES_GATEWAY_API_COMPLETION_RESPONSE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "services/gateway/api/choice_logprobs.h"
#include "services/gateway/api/request_draft.h"
#include "tandem/v1/generate.pb.h"

namespace tandem::gateway {

// The counts of all choices together.
class AnswerUsage {
 public:
  void Add(const v1::Completion& completion);

  const v1::Usage& tokens() const { return usage_; }
  // Returns `"usage":{…},"speculation":{…}`, and `,"warnings":[…]` if there are some.
  std::string Json() const;

 private:
  v1::Usage usage_;
  v1::SpeculationStats speculation_;
  std::vector<std::string> warnings_;
};

// Collects the choices of one request, and writes them as one answer or as events of a stream. The
// bodies have the members that OpenAI's have, and `speculation` and `warnings` beside them.
class CompletionResponse {
 public:
  struct Header {
    std::string id;
    int64_t created = 0;  // seconds since 1970
    std::string model;
  };
  CompletionResponse(Header header, const AnswerOptions& options, size_t num_choices);

  // The text of a choice begins with its prompt. Called before the choice's first message.
  void SetEcho(size_t choice, std::string prompt);

  // Adds a message of a choice's stream. Returns the events that it gives in a stream, and nothing
  // if the answer is no stream or the message has nothing to show.
  std::string Add(size_t choice, const v1::GenerateResponse& message);

  // Whether every choice has its completion.
  bool is_complete() const { return num_complete_ == choices_.size(); }
  const AnswerUsage& usage() const { return usage_; }

  // Returns the whole answer. PRECOND: is_complete, and the answer is no stream.
  std::string Body() const;
  // Returns the last events of a stream. PRECOND: is_complete.
  std::string LastEvents() const;

 private:
  struct Choice {
    std::string text;  // in a stream: what waits for the next event
    ChoiceLogprobs logprobs;
    std::string end = "null";          // finish_reason as JSON
    std::string stop_reason = "null";  // as JSON
    std::string json;                  // the choice, once it is complete; not for a stream
    bool is_complete = false;
  };

  // Returns the choice as JSON, and takes its text and its logprobs.
  std::string TakeChoice(size_t index);
  // Returns the members that every body begins with, up to the choices.
  std::string Begin() const;

  const Header header_;
  const AnswerOptions options_;
  std::vector<Choice> choices_;
  size_t num_complete_ = 0;
  AnswerUsage usage_;
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_COMPLETION_RESPONSE_H_
