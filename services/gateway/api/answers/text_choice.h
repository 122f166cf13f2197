// A choice of POST /v1/completions.
#ifndef TANDEM_SERVICES_GATEWAY_API_ANSWERS_TEXT_CHOICE_H_
#define TANDEM_SERVICES_GATEWAY_API_ANSWERS_TEXT_CHOICE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "services/gateway/api/answers/choice_logprobs.h"
#include "services/gateway/api/answers/choice_writer.h"

namespace tandem::gateway {

class TextChoice final : public ChoiceWriter {
 public:
  // The text begins with `echo`. `stop_token_ids` are those that the client gave.
  TextChoice(size_t index, bool has_logprobs, std::vector<int32_t> stop_token_ids,
             std::string echo);

  void Add(const v1::GenerateResponse& message) override;
  void AddPrompt(const v1::GenerateResponse& message) override;
  bool has_news() const override;
  std::string Take() override;

 private:
  const size_t index_;
  const bool has_logprobs_;
  const std::vector<int32_t> stop_token_ids_;
  std::string text_;
  ChoiceLogprobs logprobs_;
  bool has_ended_ = false;            // what waits has the end
  std::string end_ = "null";          // finish_reason as JSON
  std::string stop_reason_ = "null";  // as JSON
};

}  // namespace tandem::gateway

#endif  // TANDEM_SERVICES_GATEWAY_API_ANSWERS_TEXT_CHOICE_H_
