// A choice of POST /v1/chat/completions.
#ifndef TANDEM_SERVICES_GATEWAY_API_ANSWERS_CHAT_CHOICE_H_
#define TANDEM_SERVICES_GATEWAY_API_ANSWERS_CHAT_CHOICE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "services/gateway/api/answers/chat_logprobs.h"
#include "services/gateway/api/answers/choice_writer.h"
#include "services/gateway/api/tools/tool_call_parser.h"

namespace tandem::gateway {

class ChatChoice final : public ChoiceWriter {
 public:
  struct Options {
    size_t index = 0;
    bool stream = false;
    bool has_logprobs = false;
    std::string_view tool_call_format;      // empty: calls stay text
    const ToolNames* tool_names = nullptr;  // outlives the choice; null: the same
    bool one_call = false;                  // later calls are dropped
    std::string answer_id;                  // the ids of calls are made from it
    std::vector<int32_t> stop_token_ids;    // those that the client gave
  };
  explicit ChatChoice(const Options& options);

  void Add(const v1::GenerateResponse& message) override;
  bool has_news() const override;
  std::string Take() override;

 private:
  void AddText(const std::string& text, bool is_last);
  std::string CallId(size_t call) const;
  // Return the parts of a message or a delta, with a comma before them.
  std::string TakeContent();
  std::string TakeCalls();

  const Options options_;
  std::unique_ptr<ToolCallParser> parser_;  // null: calls stay text
  std::string content_;
  std::vector<ToolCallDelta> calls_;  // for a whole answer, one entry for each call
  ChatLogprobs logprobs_;
  bool shows_role_ = true;            // the next Take has the role
  bool has_ended_ = false;            // what waits has the end
  std::string end_ = "null";          // finish_reason as JSON
  std::string stop_reason_ = "null";  // as JSON
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_ANSWERS_CHAT_CHOICE_H_
