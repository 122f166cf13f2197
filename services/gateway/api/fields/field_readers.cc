#include "services/gateway/api/fields/field_readers.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "common/peer_text.h"
#include "services/gateway/api/fields/field_table.h"

namespace tandem::gateway {
namespace {

std::string Element(const std::string& name, size_t index) {
  return name + "[" + std::to_string(index) + "]";
}

// Returns INVALID_ARGUMENT unless the value is a token id that gRPC can carry. The router checks
// the vocabulary.
absl::Status ReadTokenId(const std::string& name, const Json& value, int32_t* id) {
  const std::optional<int64_t> number = WholeNumber(value);
  if (!number.has_value()) return WrongType(name, value, "a token id");
  if (*number < 0 || *number > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument(name + ": got " + std::to_string(*number) + ", allowed: a token id");
  }
  *id = static_cast<int32_t>(*number);
  return absl::OkStatus();
}

absl::Status ReadTokenIds(const std::string& name, const Json& value, v1::TokenIds* ids) {
  ids->mutable_ids()->Reserve(static_cast<int>(value.size()));
  for (size_t i = 0; i < value.size(); ++i) {
    int32_t id = 0;
    TANDEM_RETURN_IF_ERROR(ReadTokenId(Element(name, i), value[i], &id));
    ids->add_ids(id);
  }
  return absl::OkStatus();
}

absl::Status AddPrompt(const std::string& name, const Json& value, RequestDraft* draft) {
  if (value.is_string()) {
    draft->prompts.emplace_back(value.get<std::string>());
    return absl::OkStatus();
  }
  if (!value.is_array()) return WrongType(name, value, "a string or a list of token ids");
  v1::TokenIds ids;
  TANDEM_RETURN_IF_ERROR(ReadTokenIds(name, value, &ids));
  draft->prompts.emplace_back(std::move(ids));
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadContent(const std::string& name, const Json& content, const char* separator,
                         std::string* text) {
  if (content.is_string()) {
    *text = content.get<std::string>();
    return absl::OkStatus();
  }
  if (!content.is_array()) return WrongType(name, content, "a string or a list of text parts");
  for (size_t i = 0; i < content.size(); ++i) {
    const Json& part = content[i];
    // OpenAI's second kind of text.
    const char* const key = part.is_object() && part.contains("refusal") ? "refusal" : "text";
    if (!part.is_object() || !part.contains(key) || !part[key].is_string()) {
      const bool has_type = part.is_object() && part.contains("type") && part["type"].is_string();
      const std::string got = has_type
                                  ? "a part of type " + QuotedShort(part["type"].get<std::string>())
                                  : std::string(TypeText(part));
      return InvalidArgument(Element(name, i) + ": got " + got +
                             ", allowed: {\"type\": \"text\", \"text\": \"…\"}");
    }
    if (i > 0) *text += separator;
    *text += part[key].get<std::string>();
  }
  return absl::OkStatus();
}

absl::Status ReadNumChoices(const std::string& name, const Json& value, RequestDraft* draft) {
  const std::optional<int64_t> whole = WholeNumber(value);
  if (!whole.has_value()) return WrongType(name, value, "an integer");
  if (*whole > kMaxN || *whole < std::numeric_limits<int32_t>::min()) {
    return InvalidArgument(name + ": got " + std::to_string(*whole) + ", allowed: at most " +
                           std::to_string(kMaxN) + ", or fewer (the router's --max-choices)");
  }
  // The router refuses what is below 1, and says what its own limit is.
  const auto number = static_cast<int32_t>(*whole);
  draft->answer.num_choices = static_cast<size_t>(std::max(number, 1));
  if (number != 1) draft->shared.mutable_sampling_params()->set_n(number);
  return absl::OkStatus();
}

absl::Status WrongType(const std::string& name, const Json& got, const std::string& allowed) {
  const std::string what = got.is_number() ? got.dump() : std::string(TypeText(got));
  return InvalidArgument(name + ": got " + what + ", allowed: " + allowed);
}

std::optional<int64_t> WholeNumber(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  constexpr double kExact = 9007199254740992;  // 2^53: larger doubles are not exact
  const double number = value.get<double>();
  if (!(std::abs(number) <= kExact) || number != std::trunc(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

absl::StatusOr<int32_t> ReadInRange(const std::string& name, const Json& value, int32_t least,
                                    int32_t most) {
  const std::optional<int64_t> number = WholeNumber(value);
  if (!number.has_value()) return WrongType(name, value, "an integer");
  if (*number >= least && *number <= most) return static_cast<int32_t>(*number);
  const bool has_end = most < std::numeric_limits<int32_t>::max();
  return InvalidArgument(name + ": got " + std::to_string(*number) + ", allowed: from " +
                         std::to_string(least) + " to " +
                         (has_end ? std::to_string(most) : "2147483647, as far as there is room"));
}

absl::Status ReadModel(const std::string& name, const Json& value, RequestDraft* draft) {
  if (!value.is_string()) return WrongType(name, value, "a string");
  draft->shared.set_model(value.get<std::string>());
  return absl::OkStatus();
}

absl::Status ReadUser(const std::string& name, const Json& value, RequestDraft* draft) {
  if (!value.is_string()) return WrongType(name, value, "a string");
  draft->answer.user = value.get<std::string>();
  return absl::OkStatus();
}

absl::Status ReadPrompts(const std::string& name, const Json& value, RequestDraft* draft) {
  const bool is_one =
      value.is_string() || (value.is_array() && !value.empty() && value[0].is_number());
  if (is_one) return AddPrompt(name, value, draft);
  if (!value.is_array()) {
    return WrongType(name, value, "a string, a list of strings, token ids, or a list of them");
  }
  if (value.empty())
    return InvalidArgument(name + ": got an empty list, allowed: one prompt or more");
  if (value.size() > kMaxPrompts) {
    return InvalidArgument(name + ": got " + std::to_string(value.size()) +
                           " prompts, allowed: at most " + std::to_string(kMaxPrompts));
  }
  for (size_t i = 0; i < value.size(); ++i) {
    TANDEM_RETURN_IF_ERROR(AddPrompt(Element(name, i), value[i], draft));
  }
  return absl::OkStatus();
}

absl::Status ReadText(const std::string& name, const Json& value, RequestDraft* draft) {
  if (!value.is_string()) return WrongType(name, value, "a string");
  return AddPrompt(name, value, draft);
}

absl::Status ReadTokens(const std::string& name, const Json& value, RequestDraft* draft) {
  if (!value.is_array()) return WrongType(name, value, "a list of token ids");
  return AddPrompt(name, value, draft);
}

absl::Status ReadSeed(const std::string& name, const Json& value, RequestDraft* draft) {
  uint64_t seed = 0;
  if (value.is_number_unsigned()) {
    seed = value.get<uint64_t>();
  } else if (const std::optional<int64_t> number = WholeNumber(value)) {
    seed = static_cast<uint64_t>(*number);  // a negative seed is a seed like any other
  } else {
    return WrongType(name, value, "an integer of 64 bits");
  }
  draft->shared.mutable_sampling_params()->set_seed(seed);
  return absl::OkStatus();
}

absl::Status ReadStop(const std::string& name, const Json& value, RequestDraft* draft) {
  v1::SamplingParams* sampling = draft->shared.mutable_sampling_params();
  if (value.is_string()) {
    sampling->add_stop(value.get<std::string>());
    return absl::OkStatus();
  }
  if (!value.is_array()) return WrongType(name, value, "a string or a list of strings");
  for (size_t i = 0; i < value.size(); ++i) {
    if (!value[i].is_string()) return WrongType(Element(name, i), value[i], "a string");
    sampling->add_stop(value[i].get<std::string>());
  }
  return absl::OkStatus();
}

absl::Status ReadStopTokenIds(const std::string& name, const Json& value, RequestDraft* draft) {
  if (!value.is_array()) return WrongType(name, value, "a list of token ids");
  v1::TokenIds ids;
  TANDEM_RETURN_IF_ERROR(ReadTokenIds(name, value, &ids));
  draft->shared.mutable_sampling_params()->mutable_stop_token_ids()->Swap(ids.mutable_ids());
  return absl::OkStatus();
}

absl::Status ReadLogitBias(const std::string& name, const Json& value, RequestDraft* draft) {
  if (!value.is_object()) return WrongType(name, value, "an object from token ids to numbers");
  auto& biases = *draft->shared.mutable_sampling_params()->mutable_logit_bias();
  for (const auto& [key, bias] : value.items()) {
    int32_t id = 0;
    const char* const end = key.data() + key.size();
    const auto [stop, error] = std::from_chars(key.data(), end, id);
    if (error != std::errc() || stop != end) {
      return InvalidArgument(name + ": got the key " + QuotedShort(key) + ", allowed: token ids");
    }
    if (!bias.is_number()) return WrongType(name + "." + key, bias, "a number");
    biases[id] = static_cast<float>(bias.get<double>());
  }
  return absl::OkStatus();
}

absl::Status ReadLogprobs(const std::string& name, const Json& value, RequestDraft* draft) {
  TANDEM_RETURN_IF_ERROR(
      (ReadInteger<v1::SamplingParams, &v1::SamplingParams::set_logprobs>(name, value, draft)));
  draft->shared.mutable_sampling_params()->set_logprobs_with_text(true);
  draft->answer.logprobs = true;
  return absl::OkStatus();
}

absl::Status ReadStreamOptions(const std::string& name, const Json& value, RequestDraft* draft) {
  if (!value.is_object()) return WrongType(name, value, "an object");
  draft->answer.has_stream_options = true;
  if (const auto found = value.find("include_usage"); found != value.end() && !found->is_null()) {
    return ReadOption<&AnswerOptions::include_usage>(name + ".include_usage", *found, draft);
  }
  return absl::OkStatus();
}

absl::Status ReadPrediction(const std::string& name, const Json& value, RequestDraft* draft) {
  if (!value.is_object() || !value.contains("content")) {
    return WrongType(name, value, "{\"type\": \"content\", \"content\": \"…\"}");
  }
  std::string text;
  TANDEM_RETURN_IF_ERROR(ReadContent(name + ".content", value["content"], "", &text));
  if (!text.empty()) {
    draft->shared.mutable_speculation()->mutable_prediction()->set_text(std::move(text));
  }
  return absl::OkStatus();
}

absl::Status ReadSpeculation(const std::string& name, const Json& value, RequestDraft* draft) {
  if (!value.is_object()) return WrongType(name, value, "an object");
  return ReadFields(value, kCompletions, name + ".", draft);
}

absl::Status ReadDrafter(const std::string& name, const Json& value, RequestDraft* draft) {
  if (!value.is_string()) return WrongType(name, value, "a string");
  draft->shared.mutable_speculation()->set_drafter(value.get<std::string>());
  return absl::OkStatus();
}

}  // namespace tandem::gateway
