#include "services/gateway/api/field_table.h"

#include "common/peer_text.h"
#include "common/status.h"
#include "services/gateway/api/field_readers.h"

namespace tandem::gateway {
namespace {

using Sampling = v1::SamplingParams;
using Speculation = v1::SpeculationParams;
using Request = v1::GenerateRequest;

constexpr uint8_t kTexts = kCompletions | kTokenize;
constexpr uint8_t kAll = kCompletions | kTokenize | kDetokenize;
constexpr auto kSupported = Treatment::kSupported;
constexpr auto kIgnored = Treatment::kIgnored;
constexpr auto kRefused = Treatment::kRefused;

constexpr std::string_view kForcedText =
    "Output that must follow a grammar or a schema is not supported yet.";
constexpr std::string_view kStored = "Tandem stores no requests.";

constexpr Field kFields[] = {
    // OpenAI's completions.
    {"model",
     kAll,
     Origin::kOpenAi,
     kSupported,
     ReadModel,
     {},
     "The served model. It may be left out. Any other name is an error with status 404."},
    {"prompt",
     kCompletions,
     Origin::kOpenAi,
     kSupported,
     ReadPrompts,
     {},
     "A string, token ids, or a list of at most 256 of them. Each prompt gives one choice. A "
     "string "
     "is tokenized with the beginning-of-text token, and token ids are used unchanged."},
    {"max_tokens",
     kCompletions,
     Origin::kOpenAi,
     kSupported,
     ReadInteger<Sampling, &Sampling::set_max_tokens>,
     {},
     "1 or more. The default is 16, as OpenAI documents it. The room in the context may lower it."},
    {"max_completion_tokens",
     kCompletions,
     Origin::kOpenAi,
     kSupported,
     ReadInteger<Sampling, &Sampling::set_max_tokens>,
     {},
     "Another name of max_tokens, as chat requests have it. max_tokens counts if both are given."},
    {"temperature",
     kCompletions,
     Origin::kOpenAi,
     kSupported,
     ReadNumber<Sampling, &Sampling::set_temperature>,
     {},
     "0 is greedy. The default is 1."},
    {"top_p",
     kCompletions,
     Origin::kOpenAi,
     kSupported,
     ReadNumber<Sampling, &Sampling::set_top_p>,
     {},
     "More than 0, at most 1."},
    {"n", kCompletions, Origin::kOpenAi, kRefused, nullptr, "1",
     "Several choices for one prompt are not supported yet. A list of equal prompts gives them."},
    {"stop",
     kCompletions,
     Origin::kOpenAi,
     kSupported,
     ReadStop,
     {},
     "A string or a list of strings, as many as the router's --max-stops."},
    {"seed",
     kCompletions,
     Origin::kOpenAi,
     kSupported,
     ReadSeed,
     {},
     "64 bits. A seed makes the output reproducible, unless speculation.reproducible is false."},
    {"logprobs",
     kCompletions,
     Origin::kOpenAi,
     kSupported,
     ReadLogprobs,
     {},
     "The number of most likely tokens beside the one that was chosen: 0 to 20."},
    {"logit_bias",
     kCompletions,
     Origin::kOpenAi,
     kSupported,
     ReadLogitBias,
     {},
     "An object from token ids to numbers from -100 to 100."},
    {"presence_penalty",
     kCompletions,
     Origin::kOpenAi,
     kSupported,
     ReadNumber<Sampling, &Sampling::set_presence_penalty>,
     {},
     "From -2 to 2."},
    {"frequency_penalty",
     kCompletions,
     Origin::kOpenAi,
     kSupported,
     ReadNumber<Sampling, &Sampling::set_frequency_penalty>,
     {},
     "From -2 to 2."},
    {"stream",
     kCompletions,
     Origin::kOpenAi,
     kSupported,
     ReadOption<&AnswerOptions::stream>,
     {},
     "The answer comes as server-sent events."},
    {"stream_options",
     kCompletions,
     Origin::kOpenAi,
     kSupported,
     ReadStreamOptions,
     {},
     "Only with stream. With include_usage, one more event before [DONE] has the usage. Its other "
     "fields are ignored."},
    {"echo",
     kCompletions,
     Origin::kOpenAi,
     kSupported,
     ReadOption<&AnswerOptions::echo>,
     {},
     "The text begins with the prompt. Echo with logprobs is refused: log-probabilities of prompt "
     "tokens are not supported yet."},
    {"best_of", kCompletions, Origin::kOpenAi, kRefused, nullptr, "1",
     "Choosing the best of several outputs is not supported. OpenAI has it only for old models."},
    {"suffix", kCompletions, Origin::kOpenAi, kRefused, nullptr, "\"\"",
     "Text cannot be filled in before a suffix."},
    {"user",
     kCompletions,
     Origin::kOpenAi,
     kSupported,
     ReadUser,
     {},
     "The tenant, if the client has shown a token or a certificate to the gateway. Only requests "
     "of "
     "one tenant share computed prompts. Otherwise the field is ignored."},
    {"metadata", kCompletions, Origin::kOpenAi, kIgnored, nullptr, {}, kStored},
    {"store", kCompletions, Origin::kOpenAi, kIgnored, nullptr, {}, kStored},
    {"service_tier", kCompletions, Origin::kOpenAi, kIgnored, nullptr, {}, "There is one tier."},
    {"safety_identifier",
     kCompletions,
     Origin::kOpenAi,
     kIgnored,
     nullptr,
     {},
     "Tandem does not watch for abuse."},
    {"prompt_cache_key",
     kCompletions,
     Origin::kOpenAi,
     kIgnored,
     nullptr,
     {},
     "Computed prompts are found by their content."},
    {"prediction",
     kCompletions,
     Origin::kOpenAi,
     kSupported,
     ReadPrediction,
     {},
     "What the output is likely to be, in the shape of chat requests. Tokens that agree cost "
     "less."},
    {"messages",
     kCompletions,
     Origin::kOpenAi,
     kRefused,
     nullptr,
     {},
     "Messages belong to /v1/chat/completions, which this server does not have yet."},
    {"response_format", kCompletions, Origin::kOpenAi, kRefused, nullptr, "{\"type\": \"text\"}",
     kForcedText},

    // vLLM's extras.
    {"top_k",
     kCompletions,
     Origin::kVllm,
     kSupported,
     ReadInteger<Sampling, &Sampling::set_top_k>,
     {},
     "0 and -1 are off."},
    {"min_p",
     kCompletions,
     Origin::kVllm,
     kSupported,
     ReadNumber<Sampling, &Sampling::set_min_p>,
     {},
     "From 0 to 1."},
    {"repetition_penalty",
     kCompletions,
     Origin::kVllm,
     kSupported,
     ReadNumber<Sampling, &Sampling::set_repetition_penalty>,
     {},
     "More than 0. It looks at the prompt and the output."},
    {"min_tokens",
     kCompletions,
     Origin::kVllm,
     kSupported,
     ReadInteger<Sampling, &Sampling::set_min_tokens>,
     {},
     "End of text and stops are held back until then."},
    {"ignore_eos",
     kCompletions,
     Origin::kVllm,
     kSupported,
     ReadSwitch<Sampling, &Sampling::set_ignore_eos>,
     {},
     "End of text is a token like any other."},
    {"stop_token_ids",
     kCompletions,
     Origin::kVllm,
     kSupported,
     ReadStopTokenIds,
     {},
     "Each of these tokens ends the output."},
    {"include_stop_str_in_output",
     kCompletions,
     Origin::kVllm,
     kSupported,
     ReadSwitch<Sampling, &Sampling::set_include_stop_str_in_output>,
     {},
     "The matched stop stays in the text."},
    {"skip_special_tokens",
     kCompletions | kDetokenize,
     Origin::kVllm,
     kSupported,
     ReadSwitch<Sampling, &Sampling::set_skip_special_tokens>,
     {},
     "Special tokens give no text. The default is true for completions, and false for detokenize, "
     "as in vLLM."},
    {"add_special_tokens",
     kTexts,
     Origin::kVllm,
     kSupported,
     ReadSwitch<Request, &Request::set_add_special_tokens>,
     {},
     "False for a text that a chat template already opened."},
    {"spaces_between_special_tokens", kCompletions, Origin::kVllm, kRefused, nullptr, "true",
     "Special tokens are joined as the tokenizer joins them."},
    {"use_beam_search", kCompletions, Origin::kVllm, kRefused, nullptr, "false",
     "Beam search is not supported."},
    {"length_penalty",
     kCompletions,
     Origin::kVllm,
     kIgnored,
     nullptr,
     {},
     "It acts on beam search only."},
    {"early_stopping",
     kCompletions,
     Origin::kVllm,
     kIgnored,
     nullptr,
     {},
     "It acts on beam search only."},
    {"prompt_logprobs",
     kCompletions,
     Origin::kVllm,
     kRefused,
     nullptr,
     {},
     "Log-probabilities of prompt tokens are not supported yet."},
    {"truncate_prompt_tokens",
     kTexts,
     Origin::kVllm,
     kRefused,
     nullptr,
     {},
     "A prompt that is too long is an error, and is never cut."},
    {"allowed_token_ids", kCompletions, Origin::kVllm, kRefused, nullptr, "[]",
     "Output over a part of the vocabulary is not supported. logit_bias forbids single tokens."},
    {"bad_words", kCompletions, Origin::kVllm, kRefused, nullptr, "[]",
     "Forbidden words are not supported. logit_bias forbids single tokens."},
    {"logits_processors", kCompletions, Origin::kVllm, kRefused, nullptr, "[]",
     "Code of clients does not run in the server."},
    {"prompt_embeds",
     kCompletions,
     Origin::kVllm,
     kRefused,
     nullptr,
     {},
     "Prompts are texts or token ids."},
    {"structured_outputs", kCompletions, Origin::kVllm, kRefused, nullptr, {}, kForcedText},
    {"guided_json", kCompletions, Origin::kVllm, kRefused, nullptr, {}, kForcedText},
    {"guided_regex", kCompletions, Origin::kVllm, kRefused, nullptr, {}, kForcedText},
    {"guided_choice", kCompletions, Origin::kVllm, kRefused, nullptr, {}, kForcedText},
    {"guided_grammar", kCompletions, Origin::kVllm, kRefused, nullptr, {}, kForcedText},
    {"return_tokens_as_token_ids", kCompletions, Origin::kVllm, kRefused, nullptr, "false",
     "Tokens of logprobs are texts."},
    {"return_token_ids", kCompletions, Origin::kVllm, kRefused, nullptr, "false",
     "Token ids are in gRPC's answers, and not in those of the gateway yet."},
    {"cache_salt",
     kCompletions,
     Origin::kVllm,
     kRefused,
     nullptr,
     {},
     "Tenants share no computed prompts. The field user names the tenant."},
    {"kv_transfer_params",
     kCompletions,
     Origin::kVllm,
     kRefused,
     nullptr,
     {},
     "Caches are not moved between servers."},
    {"priority", kCompletions, Origin::kVllm, kRefused, nullptr, "0",
     "All requests have one priority."},
    {"request_id",
     kCompletions,
     Origin::kVllm,
     kIgnored,
     nullptr,
     {},
     "The gateway chooses ids, and the header x-request-id of the answer has them."},

    // Tandem's own.
    {"speculation",
     kCompletions,
     Origin::kTandem,
     kSupported,
     ReadSpeculation,
     {},
     "How this request drafts. An unknown field of this object is refused."},
    {"speculation.enabled",
     kCompletions,
     Origin::kTandem,
     kSupported,
     ReadSwitch<Speculation, &Speculation::set_enabled>,
     {},
     "False decodes plainly."},
    {"speculation.draft_length",
     kCompletions,
     Origin::kTandem,
     kSupported,
     ReadInteger<Speculation, &Speculation::set_draft_length>,
     {},
     "The number of tokens to draft in each round. Without it, the server chooses."},
    {"speculation.drafter",
     kCompletions,
     Origin::kTandem,
     kSupported,
     ReadDrafter,
     {},
     "The drafter that alone drafts for the request."},
    {"speculation.reproducible",
     kCompletions,
     Origin::kTandem,
     kSupported,
     ReadSwitch<Speculation, &Speculation::set_reproducible>,
     {},
     "The output is the same with any drafter, draft length and batch. The default is true with a "
     "seed."},
    {"speculation.max_tree_nodes",
     kCompletions,
     Origin::kTandem,
     kSupported,
     ReadInteger<Speculation, &Speculation::set_max_tree_nodes>,
     {},
     "The largest number of tokens of a draft that is a tree."},

    // vLLM's tokenize and detokenize.
    {"prompt", kTokenize, Origin::kVllm, kSupported, ReadText, {}, "The text."},
    {"messages",
     kTokenize,
     Origin::kVllm,
     kRefused,
     nullptr,
     {},
     "Chat templates are not supported yet."},
    {"return_token_strs", kTokenize, Origin::kVllm, kRefused, nullptr, "false",
     "Texts of single tokens are not supported yet."},
    {"tokens", kDetokenize, Origin::kVllm, kSupported, ReadTokens, {}, "A list of token ids."},
};

// Returns true if the row of a refused field accepts this value.
bool IsHarmless(const Field& field, const Json& value) {
  std::string_view rest = field.harmless;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('|'), rest.size());
    if (Json::parse(rest.substr(0, end)) == value) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

absl::Status Refusal(const Field& field, const Json& value) {
  // Large values and texts of clients are not repeated.
  const bool is_short = value.is_number() || value.is_boolean();
  const std::string got = is_short ? value.dump() : std::string(TypeText(value));
  const std::string allowed =
      field.harmless.empty() ? "leave it out" : "allowed: " + std::string(field.harmless);
  return InvalidArgument(std::string(field.name) + ": got " + got + ", " + allowed + ". " +
                         std::string(field.note));
}

}  // namespace

std::span<const Field> FieldTable() { return kFields; }

const Field* FindField(std::string_view name, Endpoint endpoint) {
  for (const Field& field : kFields) {
    if (field.name == name && (field.endpoints & endpoint) != 0) return &field;
  }
  return nullptr;
}

absl::Status ReadFields(const Json& body, Endpoint endpoint, const std::string& prefix,
                        RequestDraft* draft) {
  for (const auto& [key, value] : body.items()) {
    if (value.is_null()) continue;
    const std::string name = prefix + key;
    // A name with a dot at the top is not the field of an object.
    const bool is_path = prefix.empty() && key.find('.') != std::string::npos;
    const Field* const field = is_path ? nullptr : FindField(name, endpoint);
    if (field == nullptr) {
      if (prefix.empty()) continue;
      return InvalidArgument(prefix.substr(0, prefix.size() - 1) + ": got the unknown field " +
                             QuotedShort(key));
    }
    switch (field->treatment) {
      case Treatment::kSupported:
        TANDEM_RETURN_IF_ERROR(field->read(name, value, draft));
        break;
      case Treatment::kIgnored:
        break;
      case Treatment::kRefused:
        if (!IsHarmless(*field, value)) return Refusal(*field, value);
        break;
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::gateway
