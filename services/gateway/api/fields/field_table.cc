#include "services/gateway/api/fields/field_table.h"

#include "common/peer_text.h"
#include "common/status.h"
#include "services/gateway/api/fields/chat_readers.h"
#include "services/gateway/api/fields/field_readers.h"

namespace tandem::gateway {
namespace {

using Sampling = v1::SamplingParams;
using Speculation = v1::SpeculationParams;
using Request = v1::GenerateRequest;

constexpr uint8_t kGenerate = kCompletions | kChat;
constexpr uint8_t kTexts = kCompletions | kTokenize;
constexpr uint8_t kAll = kGenerate | kTokenize | kDetokenize;
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
     ReadLimit<&RequestDraft::max_tokens, 0>,
     {},
     "1 or more, or 0 with echo. The default is 16, as OpenAI documents it. The context may lower "
     "it."},
    {"max_tokens",
     kChat,
     Origin::kOpenAi,
     kSupported,
     ReadLimit<&RequestDraft::max_tokens, 1>,
     {},
     "The older name of max_completion_tokens, which counts if both are given."},
    {"max_completion_tokens",
     kCompletions,
     Origin::kOpenAi,
     kSupported,
     ReadLimit<&RequestDraft::max_completion_tokens, 0>,
     {},
     "Another name of max_tokens, as chat requests have it. max_tokens counts if both are given."},
    {"max_completion_tokens",
     kChat,
     Origin::kOpenAi,
     kSupported,
     ReadLimit<&RequestDraft::max_completion_tokens, 1>,
     {},
     "1 or more. The default is the room in the context."},
    {"temperature",
     kGenerate,
     Origin::kOpenAi,
     kSupported,
     ReadNumber<Sampling, &Sampling::set_temperature>,
     {},
     "0 is greedy. The default is 1."},
    {"top_p",
     kGenerate,
     Origin::kOpenAi,
     kSupported,
     ReadNumber<Sampling, &Sampling::set_top_p>,
     {},
     "More than 0, at most 1."},
    {"n",
     kGenerate,
     Origin::kOpenAi,
     kSupported,
     ReadNumChoices,
     {},
     "The number of choices for each prompt, as many as the router's --max-choices (16). Choice i "
     "is "
     "the output with the seed plus i."},
    {"stop",
     kGenerate,
     Origin::kOpenAi,
     kSupported,
     ReadStop,
     {},
     "A string or a list of strings, as many as the router's --max-stops."},
    {"seed",
     kGenerate,
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
     kGenerate,
     Origin::kOpenAi,
     kSupported,
     ReadLogitBias,
     {},
     "An object from token ids to numbers from -100 to 100."},
    {"presence_penalty",
     kGenerate,
     Origin::kOpenAi,
     kSupported,
     ReadNumber<Sampling, &Sampling::set_presence_penalty>,
     {},
     "From -2 to 2."},
    {"frequency_penalty",
     kGenerate,
     Origin::kOpenAi,
     kSupported,
     ReadNumber<Sampling, &Sampling::set_frequency_penalty>,
     {},
     "From -2 to 2."},
    {"stream",
     kGenerate,
     Origin::kOpenAi,
     kSupported,
     ReadOption<&AnswerOptions::stream>,
     {},
     "The answer comes as server-sent events."},
    {"stream_options",
     kGenerate,
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
     "The text begins with the prompt. With logprobs, the lists begin with the prompt's tokens, of "
     "which the first has null, and the whole prompt is computed."},
    {"best_of", kCompletions, Origin::kOpenAi, kRefused, nullptr, "1",
     "Choosing the best of several outputs is not supported. OpenAI has it only for old models."},
    {"suffix", kCompletions, Origin::kOpenAi, kRefused, nullptr, "\"\"",
     "Text cannot be filled in before a suffix."},
    {"user",
     kGenerate,
     Origin::kOpenAi,
     kSupported,
     ReadUser,
     {},
     "The tenant, if the client has shown a token or a certificate to the gateway. Only requests "
     "of "
     "one tenant share computed prompts. Otherwise the field is ignored."},
    {"metadata", kGenerate, Origin::kOpenAi, kIgnored, nullptr, {}, kStored},
    {"store", kGenerate, Origin::kOpenAi, kIgnored, nullptr, {}, kStored},
    {"service_tier", kGenerate, Origin::kOpenAi, kIgnored, nullptr, {}, "There is one tier."},
    {"safety_identifier",
     kGenerate,
     Origin::kOpenAi,
     kIgnored,
     nullptr,
     {},
     "Tandem does not watch for abuse."},
    {"prompt_cache_key",
     kGenerate,
     Origin::kOpenAi,
     kIgnored,
     nullptr,
     {},
     "Computed prompts are found by their content."},
    {"prediction",
     kGenerate,
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
     "Messages belong to /v1/chat/completions."},
    {"response_format", kGenerate, Origin::kOpenAi, kRefused, nullptr, "{\"type\": \"text\"}",
     kForcedText},

    // OpenAI's chats.
    {"messages",
     kChat,
     Origin::kOpenAi,
     kSupported,
     ReadMessages,
     {},
     "The conversation, which the model's chat template renders. A content is a string or a list "
     "of "
     "text parts, which are joined by line breaks. Images, audio and files are refused. The role "
     "developer becomes system where the template does not know it."},
    {"tools",
     kChat,
     Origin::kOpenAi,
     kSupported,
     ReadTools,
     {},
     "Functions that the model may call. The chat template shows them to the model. Calls in the "
     "output are found for the formats hermes (also Qwen), llama3_json and mistral, and stay text "
     "for other models (the router's --tool-call-format)."},
    {"tool_choice",
     kChat,
     Origin::kOpenAi,
     kSupported,
     ReadToolChoice,
     {},
     "auto, or none, which shows no tools to the model. required and a named function are refused: "
     "output cannot be forced yet."},
    {"parallel_tool_calls",
     kChat,
     Origin::kOpenAi,
     kSupported,
     ReadParallelCalls,
     {},
     "False keeps the first call of an answer, and drops the others."},
    {"prompt", kChat, Origin::kOpenAi, kRefused, nullptr, {}, "Prompts belong to /v1/completions."},
    {"functions", kChat, Origin::kOpenAi, kRefused, nullptr, "[]", "Its newer name is tools."},
    {"function_call", kChat, Origin::kOpenAi, kRefused, nullptr, "\"none\"",
     "Its newer name is tool_choice."},
    {"logprobs",
     kChat,
     Origin::kOpenAi,
     kSupported,
     ReadChatLogprobs,
     {},
     "Whether the answer has the log-probabilities of its tokens, before all transforms."},
    {"top_logprobs",
     kChat,
     Origin::kOpenAi,
     kSupported,
     ReadTopLogprobs,
     {},
     "Only with logprobs. The number of most likely tokens to report for each token: 0 to 20."},
    {"reasoning_effort",
     kChat,
     Origin::kOpenAi,
     kSupported,
     ReadReasoningEffort,
     {},
     "The template gets it as the variable reasoning_effort. Most templates do not use it."},
    {"modalities", kChat, Origin::kOpenAi, kRefused, nullptr, "[\"text\"]", "Answers are text."},
    {"audio", kChat, Origin::kOpenAi, kRefused, nullptr, {}, "Answers are text."},
    {"web_search_options",
     kChat,
     Origin::kOpenAi,
     kRefused,
     nullptr,
     {},
     "The server does not search."},
    {"verbosity", kChat, Origin::kOpenAi, kRefused, nullptr, "\"medium\"",
     "A message of the system can ask for short answers."},

    // vLLM's extras.
    {"top_k",
     kGenerate,
     Origin::kVllm,
     kSupported,
     ReadInteger<Sampling, &Sampling::set_top_k>,
     {},
     "0 and -1 are off."},
    {"min_p",
     kGenerate,
     Origin::kVllm,
     kSupported,
     ReadNumber<Sampling, &Sampling::set_min_p>,
     {},
     "From 0 to 1."},
    {"repetition_penalty",
     kGenerate,
     Origin::kVllm,
     kSupported,
     ReadNumber<Sampling, &Sampling::set_repetition_penalty>,
     {},
     "More than 0. It looks at the prompt and the output."},
    {"min_tokens",
     kGenerate,
     Origin::kVllm,
     kSupported,
     ReadInteger<Sampling, &Sampling::set_min_tokens>,
     {},
     "End of text and stops are held back until then."},
    {"ignore_eos",
     kGenerate,
     Origin::kVllm,
     kSupported,
     ReadSwitch<Sampling, &Sampling::set_ignore_eos>,
     {},
     "End of text is a token like any other."},
    {"stop_token_ids",
     kGenerate,
     Origin::kVllm,
     kSupported,
     ReadStopTokenIds,
     {},
     "Each of these tokens ends the output."},
    {"include_stop_str_in_output",
     kGenerate,
     Origin::kVllm,
     kSupported,
     ReadSwitch<Sampling, &Sampling::set_include_stop_str_in_output>,
     {},
     "The matched stop stays in the text."},
    {"skip_special_tokens",
     kGenerate | kDetokenize,
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
    {"spaces_between_special_tokens", kGenerate, Origin::kVllm, kRefused, nullptr, "true",
     "Special tokens are joined as the tokenizer joins them."},
    {"use_beam_search", kGenerate, Origin::kVllm, kRefused, nullptr, "false",
     "Beam search is not supported."},
    {"length_penalty",
     kGenerate,
     Origin::kVllm,
     kIgnored,
     nullptr,
     {},
     "It acts on beam search only."},
    {"early_stopping",
     kGenerate,
     Origin::kVllm,
     kIgnored,
     nullptr,
     {},
     "It acts on beam search only."},
    {"prompt_logprobs",
     kGenerate,
     Origin::kVllm,
     kRefused,
     nullptr,
     {},
     "Completions have them in OpenAI's shape: with echo and logprobs."},
    {"truncate_prompt_tokens",
     kTexts,
     Origin::kVllm,
     kRefused,
     nullptr,
     {},
     "A prompt that is too long is an error, and is never cut."},
    {"allowed_token_ids", kGenerate, Origin::kVllm, kRefused, nullptr, "[]",
     "Output over a part of the vocabulary is not supported. logit_bias forbids single tokens."},
    {"bad_words", kGenerate, Origin::kVllm, kRefused, nullptr, "[]",
     "Forbidden words are not supported. logit_bias forbids single tokens."},
    {"logits_processors", kGenerate, Origin::kVllm, kRefused, nullptr, "[]",
     "Code of clients does not run in the server."},
    {"prompt_embeds",
     kCompletions,
     Origin::kVllm,
     kRefused,
     nullptr,
     {},
     "Prompts are texts or token ids."},
    {"structured_outputs", kGenerate, Origin::kVllm, kRefused, nullptr, {}, kForcedText},
    {"guided_json", kGenerate, Origin::kVllm, kRefused, nullptr, {}, kForcedText},
    {"guided_regex", kGenerate, Origin::kVllm, kRefused, nullptr, {}, kForcedText},
    {"guided_choice", kGenerate, Origin::kVllm, kRefused, nullptr, {}, kForcedText},
    {"guided_grammar", kGenerate, Origin::kVllm, kRefused, nullptr, {}, kForcedText},
    {"return_tokens_as_token_ids", kGenerate, Origin::kVllm, kRefused, nullptr, "false",
     "Tokens of logprobs are texts."},
    {"return_token_ids", kGenerate, Origin::kVllm, kRefused, nullptr, "false",
     "Token ids are in gRPC's answers, and not in those of the gateway yet."},
    {"cache_salt",
     kGenerate,
     Origin::kVllm,
     kRefused,
     nullptr,
     {},
     "Tenants share no computed prompts. The field user names the tenant."},
    {"kv_transfer_params",
     kGenerate,
     Origin::kVllm,
     kRefused,
     nullptr,
     {},
     "Caches are not moved between servers."},
    {"priority", kGenerate, Origin::kVllm, kRefused, nullptr, "0",
     "All requests have one priority."},
    {"request_id",
     kGenerate,
     Origin::kVllm,
     kIgnored,
     nullptr,
     {},
     "The gateway chooses ids, and the header x-request-id of the answer has them."},

    // vLLM's extras of chats.
    {"chat_template_kwargs",
     kChat,
     Origin::kVllm,
     kSupported,
     ReadTemplateKwargs,
     {},
     "Further variables of the chat template, such as enable_thinking."},
    {"add_generation_prompt",
     kChat,
     Origin::kVllm,
     kSupported,
     ReadGenerationPrompt,
     {},
     "Whether the prompt ends with the beginning of an answer. The default is true."},
    {"add_special_tokens",
     kChat,
     Origin::kVllm,
     kSupported,
     ReadSwitch<Request, &Request::set_add_special_tokens>,
     {},
     "Whether the tokenizer adds the beginning-of-text token if the template did not write it. The "
     "default is false."},
    {"continue_final_message", kChat, Origin::kVllm, kRefused, nullptr, "false",
     "The last message cannot be continued."},
    {"chat_template",
     kChat,
     Origin::kVllm,
     kRefused,
     nullptr,
     {},
     "Programs of clients do not run in the server. The operator chooses the template "
     "(--chat-template)."},
    {"documents", kChat, Origin::kVllm, kRefused, nullptr, "[]",
     "Documents belong into the messages, or into chat_template_kwargs."},
    {"mm_processor_kwargs", kChat, Origin::kVllm, kRefused, nullptr, {}, "Messages are text."},
    {"echo", kChat, Origin::kVllm, kRefused, nullptr, "false",
     "Answers of chats do not repeat the prompt."},
    {"include_reasoning",
     kChat,
     Origin::kVllm,
     kIgnored,
     nullptr,
     {},
     "Reasoning is a part of the text."},

    // Tandem's own.
    {"speculation",
     kGenerate,
     Origin::kTandem,
     kSupported,
     ReadSpeculation,
     {},
     "How this request drafts. An unknown field of this object is refused."},
    {"speculation.enabled",
     kGenerate,
     Origin::kTandem,
     kSupported,
     ReadSwitch<Speculation, &Speculation::set_enabled>,
     {},
     "False decodes plainly."},
    {"speculation.draft_length",
     kGenerate,
     Origin::kTandem,
     kSupported,
     ReadInteger<Speculation, &Speculation::set_draft_length>,
     {},
     "The number of tokens to draft in each round. Without it, the server chooses."},
    {"speculation.drafter",
     kGenerate,
     Origin::kTandem,
     kSupported,
     ReadDrafter,
     {},
     "The drafter that alone drafts for the request."},
    {"speculation.reproducible",
     kGenerate,
     Origin::kTandem,
     kSupported,
     ReadSwitch<Speculation, &Speculation::set_reproducible>,
     {},
     "The output is the same with any drafter, draft length and batch. The default is true with a "
     "seed."},
    {"speculation.max_tree_nodes",
     kGenerate,
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
     kSupported,
     ReadMessages,
     {},
     "A chat in place of the prompt."},
    {"tools", kTokenize, Origin::kVllm, kSupported, ReadTools, {}, "Of a chat."},
    {"chat_template_kwargs",
     kTokenize,
     Origin::kVllm,
     kSupported,
     ReadTemplateKwargs,
     {},
     "Of a chat."},
    {"add_generation_prompt",
     kTokenize,
     Origin::kVllm,
     kSupported,
     ReadGenerationPrompt,
     {},
     "Of a chat."},
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
  std::string got = is_short ? value.dump() : std::string(TypeText(value));
  // Values that have a type are told apart by it.
  if (value.is_object() && value.contains("type") && value["type"].is_string()) {
    got += " of type " + QuotedShort(value["type"].get<std::string>());
  }
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
