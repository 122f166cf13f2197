#include "services/cli/batch/batch_line.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status.h"
#include "services/gateway/api/answers/json_text.h"
#include "services/gateway/api/fields/json_body.h"

namespace tandem::cli {

namespace {

using gateway::Json;

constexpr char kCompletionsUrl[] = "/v1/completions";
constexpr char kChatUrl[] = "/v1/chat/completions";
constexpr int kHttpOk = 200;

// The line may have what the gateway allows a body, and its own object with four members around it.
gateway::JsonLimits LineLimits() {
  gateway::JsonLimits limits;
  limits.depth += 1;
  limits.values += 4;
  limits.containers += 1;
  return limits;
}

absl::StatusOr<Json> ParseLine(std::string_view text) {
  auto json = gateway::ParseJsonBody(text, LineLimits());
  if (json.ok()) return json;
  return InvalidArgument(absl::StrCat("the line is not a JSON object that can be sent: it ",
                                      absl::StripPrefix(json.status().message(), "the body ")));
}

// Returns the text of a member. INVALID_ARGUMENT: it is missing, or is not a text.
absl::StatusOr<std::string> TextMember(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end()) return InvalidArgument(absl::StrCat(name, ": is missing"));
  if (!found->is_string()) return InvalidArgument(absl::StrCat(name, ": must be a text"));
  return found->get<std::string>();
}

}  // namespace

absl::StatusOr<BatchLine> ParseBatchLine(std::string_view text) {
  TANDEM_ASSIGN_OR_RETURN(const Json json, ParseLine(text));
  BatchLine line;
  TANDEM_ASSIGN_OR_RETURN(line.custom_id, TextMember(json, "custom_id"));
  if (line.custom_id.empty()) return InvalidArgument("custom_id: is empty");
  TANDEM_ASSIGN_OR_RETURN(const std::string method, TextMember(json, "method"));
  if (method != "POST") return InvalidArgument("method: got \"" + method + "\", allowed: POST");
  TANDEM_ASSIGN_OR_RETURN(const std::string url, TextMember(json, "url"));
  line.is_chat = url == kChatUrl;
  if (!line.is_chat && url != kCompletionsUrl) {
    return InvalidArgument(
        absl::StrCat("url: got \"", url, "\", allowed: ", kCompletionsUrl, " or ", kChatUrl));
  }
  const auto body = json.find("body");
  if (body == json.end() || !body->is_object()) {
    return InvalidArgument("body: must be a JSON object");
  }
  line.body = gateway::OrderedMember(text, "body");
  return line;
}

std::string BatchAnswerLine(const std::string& custom_id, const std::string& request_id,
                            int http_status, const std::string& body) {
  using gateway::JsonText;
  return "{\"id\":" + JsonText("batch_req_" + request_id) +
         ",\"custom_id\":" + JsonText(custom_id) +
         ",\"response\":{\"status_code\":" + std::to_string(http_status) +
         ",\"request_id\":" + JsonText(request_id) + ",\"body\":" + body + "},\"error\":null}\n";
}

absl::StatusOr<BatchAnswer> ParseBatchAnswer(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("response")) {
    return InvalidArgument("the line is not an answer of a batch");
  }
  BatchAnswer answer;
  TANDEM_ASSIGN_OR_RETURN(answer.custom_id, TextMember(json, "custom_id"));
  const Json& response = json["response"];
  answer.has_succeeded = response.is_object() && response.contains("status_code") &&
                         response["status_code"] == kHttpOk;
  return answer;
}

}  // namespace tandem::cli
