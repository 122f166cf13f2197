// One line of a batch, and the line that answers it.
#ifndef TANDEM_SERVICES_CLI_BATCH_BATCH_LINE_H_
#define TANDEM_SERVICES_CLI_BATCH_BATCH_LINE_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tandem::cli {

// {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {…}}
struct BatchLine {
  std::string custom_id;
  bool is_chat = false;
  std::string body;  // JSON, with its members in the order of the line
};

// INVALID_ARGUMENT: the line is not JSON, or a member is missing or has a value that is not
// allowed. The body itself is not looked at.
absl::StatusOr<BatchLine> ParseBatchLine(std::string_view text);

// Return the line that answers, with its newline: with the status and the body of an answer over
// HTTP.
std::string BatchAnswerLine(const std::string& custom_id, const std::string& request_id,
                            int http_status, const std::string& body);

struct BatchAnswer {
  std::string custom_id;
  bool has_succeeded = false;
};

// INVALID_ARGUMENT: the text is not a line that BatchAnswerLine made, or OpenAI.
absl::StatusOr<BatchAnswer> ParseBatchAnswer(std::string_view text);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BATCH_BATCH_LINE_H_
