#include "services/gateway/api/answers/answer_usage.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "services/gateway/api/answers/json_text.h"

namespace tandem::gateway {
namespace {

std::string Member(const char* name, int64_t value) {
  return "\"" + std::string(name) + "\":" + std::to_string(value);
}

}  // namespace

std::string WarningsMember(const google::protobuf::RepeatedPtrField<std::string>& warnings) {
  std::string json;
  for (const std::string& warning : warnings) {
    absl::StrAppend(&json, json.empty() ? ",\"warnings\":[" : ",", JsonText(warning));
  }
  if (!json.empty()) json += "]";
  return json;
}

void AnswerUsage::Add(const v1::Completion& completion, bool counts_prompt) {
  const v1::Usage& usage = completion.usage();
  if (counts_prompt) {
    usage_.set_prompt_tokens(usage_.prompt_tokens() + usage.prompt_tokens());
    usage_.set_cached_prompt_tokens(usage_.cached_prompt_tokens() + usage.cached_prompt_tokens());
  }
  usage_.set_completion_tokens(usage_.completion_tokens() + usage.completion_tokens());
  usage_.set_accepted_prediction_tokens(usage_.accepted_prediction_tokens() +
                                        usage.accepted_prediction_tokens());
  usage_.set_rejected_prediction_tokens(usage_.rejected_prediction_tokens() +
                                        usage.rejected_prediction_tokens());
  const v1::SpeculationStats& stats = completion.speculation();
  speculation_.set_num_drafts(speculation_.num_drafts() + stats.num_drafts());
  speculation_.set_num_draft_tokens(speculation_.num_draft_tokens() + stats.num_draft_tokens());
  speculation_.set_num_tested_tokens(speculation_.num_tested_tokens() + stats.num_tested_tokens());
  speculation_.set_num_accepted_tokens(speculation_.num_accepted_tokens() +
                                       stats.num_accepted_tokens());
  speculation_.set_num_plain_rounds(speculation_.num_plain_rounds() + stats.num_plain_rounds());
  if (!stats.drafter().empty()) speculation_.set_drafter(stats.drafter());
  speculation_.set_reproducible(stats.reproducible());
  for (const std::string& warning : completion.warnings()) {
    if (std::find(warnings_.begin(), warnings_.end(), warning) == warnings_.end()) {
      *warnings_.Add() = warning;
    }
  }
}

std::string AnswerUsage::Json() const {
  const auto ratio = [](int part, int whole) {
    return JsonNumber(whole == 0 ? 0 : static_cast<double>(part) / whole);
  };
  const v1::SpeculationStats& stats = speculation_;
  const std::string drafter = stats.drafter().empty() ? "null" : JsonText(stats.drafter());
  return "\"usage\":{" + Member("prompt_tokens", usage_.prompt_tokens()) + "," +
         Member("completion_tokens", usage_.completion_tokens()) + "," +
         Member("total_tokens", usage_.prompt_tokens() + usage_.completion_tokens()) +
         ",\"prompt_tokens_details\":{" + Member("cached_tokens", usage_.cached_prompt_tokens()) +
         "},\"completion_tokens_details\":{" +
         Member("accepted_prediction_tokens", usage_.accepted_prediction_tokens()) + "," +
         Member("rejected_prediction_tokens", usage_.rejected_prediction_tokens()) +
         "}},\"speculation\":{" + Member("num_drafts", stats.num_drafts()) + "," +
         Member("num_draft_tokens", stats.num_draft_tokens()) + "," +
         Member("num_tested_tokens", stats.num_tested_tokens()) + "," +
         Member("num_accepted_tokens", stats.num_accepted_tokens()) + "," +
         Member("num_plain_rounds", stats.num_plain_rounds()) +
         ",\"acceptance_rate\":" + ratio(stats.num_accepted_tokens(), stats.num_draft_tokens()) +
         ",\"drafter\":" + drafter +
         ",\"reproducible\":" + (stats.reproducible() ? "true" : "false") + "}" +
         WarningsMember(warnings_);
}

}  // namespace tandem::gateway
