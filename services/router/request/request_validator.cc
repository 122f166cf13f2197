#include "services/router/request/request_validator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/peer_text.h"
#include "common/status.h"
#include "services/router/drafting/lookup/recycling_lookup.h"

namespace tandem {
namespace {

// Default of max_tokens for a chat, whose end the model decides. The room in the context lowers it.
constexpr int32_t kWholeContext = std::numeric_limits<int32_t>::max();

absl::Status Refused(const std::string& field, const std::string& given,
                     const std::string& allowed) {
  return InvalidArgument(absl::StrCat(field, ": got ", given, ", allowed: ", allowed));
}

std::string UpTo(size_t limit, const char* unit) {
  return absl::StrCat("at most ", limit, " ", unit);
}

// Comparisons with NaN are false, so callers pass whether the value is allowed.
absl::Status CheckNumber(const char* name, double value, bool allowed_value, const char* allowed) {
  if (std::isfinite(value) && allowed_value) return absl::OkStatus();
  return Refused(name, absl::StrFormat("%g", value), allowed);
}

absl::Status CheckTokenId(const std::string& field, int32_t id, uint32_t vocabulary_size) {
  if (id >= 0 && static_cast<uint32_t>(id) < vocabulary_size) return absl::OkStatus();
  return Refused(field, absl::StrCat(id),
                 absl::StrCat("token ids from 0 to ", vocabulary_size - 1));
}

absl::Status CheckTokenIds(const std::string& field, std::span<const int32_t> ids,
                           uint32_t vocabulary_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || static_cast<uint32_t>(ids[i]) >= vocabulary_size) {
      return CheckTokenId(absl::StrCat(field, "[", i, "]"), ids[i], vocabulary_size);
    }
  }
  return absl::OkStatus();
}

// Returns true if the tokenizer added a special token that the text itself began with. `ids` are
// the prompt's, with special tokens.
bool BeginsTwice(std::span<const int32_t> ids, const std::string& prompt,
                 const Tokenizer& tokenizer) {
  if (ids.size() < 2 || ids[0] != ids[1] || !tokenizer.IsSpecial(ids[0])) return false;
  const auto without = tokenizer.Encode(prompt, /*add_special_tokens=*/false);
  return without.ok() && without->size() < ids.size();
}

}  // namespace

RequestValidator::RequestValidator(const RequestLimits& limits, PromptEncoder encoder,
                                   std::function<uint64_t()> random)
    : limits_(limits), encoder_(std::move(encoder)), random_(std::move(random)) {}

RequestValidator::RequestValidator(const RequestLimits& limits, const Tokenizer* tokenizer,
                                   std::function<uint64_t()> random)
    : RequestValidator(limits,
                       PromptEncoder(tokenizer, NotFound("the server has no chat template"),
                                     limits.max_prompt_bytes),
                       std::move(random)) {}

absl::StatusOr<GenerationRequest> RequestValidator::Validate(const v1::GenerateRequest& request,
                                                             const ServedModel& served) const {
  if (!request.model().empty() && request.model() != served.model) {
    return NotFound(absl::StrCat("model: got ", QuotedShort(request.model()),
                                 ", served: ", QuotedShort(served.model),
                                 " (leave it empty for the one that is served)"));
  }
  if (request.request_id().size() > limits_.max_request_id_bytes) {
    return Refused("request_id", absl::StrCat(request.request_id().size(), " bytes"),
                   UpTo(limits_.max_request_id_bytes, "bytes"));
  }
  // Cheap checks come first, so that a bad parameter is refused before a long prompt is tokenized.
  GenerationRequest resolved;
  resolved.max_tokens = request.has_chat() ? kWholeContext : limits_.default_max_tokens;
  TANDEM_RETURN_IF_ERROR(ResolveSampling(request.sampling_params(), served, &resolved));
  TANDEM_RETURN_IF_ERROR(ResolveStops(request.sampling_params(), served, &resolved));
  TANDEM_RETURN_IF_ERROR(ResolveChoices(request.sampling_params(), &resolved));
  TANDEM_RETURN_IF_ERROR(ResolveSpeculation(request, served, &resolved));
  TANDEM_RETURN_IF_ERROR(ResolvePrompt(request, served, &resolved));
  if (request.speculation().has_prediction()) {
    TANDEM_RETURN_IF_ERROR(
        ResolvePrediction(request.speculation().prediction(), served, &resolved));
  }

  const auto prompt_length = static_cast<uint32_t>(resolved.prompt_token_ids.size());
  resolved.LimitMaxTokens(served.max_context_tokens - prompt_length,
                          absl::StrCat("the context of ", served.max_context_tokens, " tokens"));
  resolved.open.mutable_sampling()->set_max_tokens(resolved.max_tokens);
  resolved.open.set_prompt_length(prompt_length);
  resolved.request_id =
      request.request_id().empty() ? absl::StrFormat("%016x", random_()) : request.request_id();
  return resolved;
}

absl::Status RequestValidator::ResolveText(const v1::GenerateRequest& request,
                                           GenerationRequest* resolved) const {
  const std::string& prompt = request.prompt();
  if (prompt.empty()) return Refused("prompt", "an empty text", "one character or more");
  const bool add_special = !request.has_add_special_tokens() || request.add_special_tokens();
  TANDEM_ASSIGN_OR_RETURN(PromptEncoder::Prompt encoded,
                          encoder_.EncodeText("prompt", prompt, add_special));
  std::vector<int32_t>& ids = resolved->prompt_token_ids;
  ids = std::move(encoded.ids);
  if (add_special && BeginsTwice(ids, prompt, encoder_.tokenizer())) {
    resolved->warnings.push_back(
        absl::StrCat("prompt: begins with ", std::string(encoder_.tokenizer().Entry(ids[0])),
                     " twice, because the tokenizer adds one; leave it out of the text, or set "
                     "add_special_tokens to false"));
  }
  return absl::OkStatus();
}

absl::Status RequestValidator::ResolvePrompt(const v1::GenerateRequest& request,
                                             const ServedModel& served,
                                             GenerationRequest* resolved) const {
  std::vector<int32_t>& ids = resolved->prompt_token_ids;
  const char* field = "prompt";
  switch (request.input_case()) {
    case v1::GenerateRequest::kPrompt:
      TANDEM_RETURN_IF_ERROR(ResolveText(request, resolved));
      break;
    case v1::GenerateRequest::kPromptTokenIds: {
      field = "prompt_token_ids";
      const auto& given = request.prompt_token_ids().ids();
      if (given.empty()) return Refused(field, "no ids", "one id or more");
      ids.assign(given.begin(), given.end());
      TANDEM_RETURN_IF_ERROR(CheckTokenIds(field, ids, served.vocabulary_size));
      break;
    }
    case v1::GenerateRequest::kChat: {
      field = "chat";
      TANDEM_ASSIGN_OR_RETURN(PromptEncoder::Prompt encoded,
                              encoder_.EncodeChat(request.chat(), request.add_special_tokens()));
      ids = std::move(encoded.ids);
      resolved->rendered_chat = std::move(encoded.text);
      for (std::string& warning : encoded.warnings) {
        resolved->warnings.push_back(std::move(warning));
      }
      break;
    }
    case v1::GenerateRequest::INPUT_NOT_SET:
      return Refused("input", "none of prompt, prompt_token_ids and chat", "one of the three");
  }
  if (ids.empty()) return Refused(field, "a text that has no tokens", "one token or more");
  // A tokenizer may have more entries than the model.
  TANDEM_RETURN_IF_ERROR(
      CheckTokenIds(absl::StrCat(field, "'s token"), ids, served.vocabulary_size));
  if (ids.size() >= served.max_context_tokens) {
    const std::string given = absl::StrCat(ids.size(), " tokens");
    const std::string most = UpTo(served.max_context_tokens - 1, "tokens");
    if (served.context_limited_by_pages) {  // the operator can fix this, and the client cannot
      return ResourceExhausted(
          absl::StrCat(field, ": got ", given, ", allowed: ", most,
                       ", which is what the KV cache holds with one more (--kv-cache-bytes)"));
    }
    return Refused(field, given,
                   absl::StrCat(most, " (the context has ", served.max_context_tokens,
                                ", one must be left for the output)"));
  }
  return absl::OkStatus();
}

absl::Status RequestValidator::ResolveSampling(const v1::SamplingParams& given,
                                               const ServedModel& served,
                                               GenerationRequest* resolved) const {
  v1::SamplingParams* out = resolved->open.mutable_sampling();
  out->set_temperature(given.has_temperature() ? given.temperature() : 1.0f);
  out->set_top_p(given.has_top_p() ? given.top_p() : 1.0f);
  out->set_top_k(given.has_top_k() ? std::max(given.top_k(), 0) : 0);
  out->set_min_p(given.has_min_p() ? given.min_p() : 0.0f);
  out->set_repetition_penalty(given.has_repetition_penalty() ? given.repetition_penalty() : 1.0f);
  out->set_presence_penalty(given.has_presence_penalty() ? given.presence_penalty() : 0.0f);
  out->set_frequency_penalty(given.has_frequency_penalty() ? given.frequency_penalty() : 0.0f);
  out->set_seed(given.has_seed() ? given.seed() : random_());
  out->set_max_tokens(given.has_max_tokens() ? given.max_tokens() : resolved->max_tokens);
  out->set_min_tokens(given.has_min_tokens() ? given.min_tokens() : 0);
  *out->mutable_logit_bias() = given.logit_bias();
  if (given.has_logprobs()) out->set_logprobs(given.logprobs());

  TANDEM_RETURN_IF_ERROR(CheckNumber("sampling_params.temperature", out->temperature(),
                                     out->temperature() >= 0 && out->temperature() <= 1e6,
                                     "from 0 (greedy) to 1e+06"));
  TANDEM_RETURN_IF_ERROR(CheckNumber("sampling_params.top_p", out->top_p(),
                                     out->top_p() > 0 && out->top_p() <= 1,
                                     "more than 0, at most 1"));
  TANDEM_RETURN_IF_ERROR(CheckNumber("sampling_params.min_p", out->min_p(),
                                     out->min_p() >= 0 && out->min_p() <= 1, "from 0 to 1"));
  TANDEM_RETURN_IF_ERROR(CheckNumber("sampling_params.top_k", given.top_k(), given.top_k() >= -1,
                                     "1 or more; 0 or -1 turns it off"));
  TANDEM_RETURN_IF_ERROR(
      CheckNumber("sampling_params.repetition_penalty", out->repetition_penalty(),
                  out->repetition_penalty() > 0 && out->repetition_penalty() <= 1e6,
                  "more than 0, at most 1e+06"));
  TANDEM_RETURN_IF_ERROR(CheckNumber("sampling_params.presence_penalty", out->presence_penalty(),
                                     out->presence_penalty() >= -2 && out->presence_penalty() <= 2,
                                     "from -2 to 2"));
  TANDEM_RETURN_IF_ERROR(
      CheckNumber("sampling_params.frequency_penalty", out->frequency_penalty(),
                  out->frequency_penalty() >= -2 && out->frequency_penalty() <= 2, "from -2 to 2"));
  TANDEM_RETURN_IF_ERROR(ResolveScores(given, resolved));
  if (out->min_tokens() < 0 || out->min_tokens() > out->max_tokens()) {
    return Refused("sampling_params.min_tokens", absl::StrCat(out->min_tokens()),
                   absl::StrCat("from 0 to ", out->max_tokens(), " (max_tokens)"));
  }
  if (given.has_logprobs() && (given.logprobs() < 0 || given.logprobs() > limits_.max_logprobs)) {
    return Refused("sampling_params.logprobs", absl::StrCat(given.logprobs()),
                   absl::StrCat("from 0 to ", limits_.max_logprobs));
  }
  if (given.logit_bias().size() > limits_.max_logit_bias) {
    return Refused("sampling_params.logit_bias",
                   absl::StrCat(given.logit_bias().size(), " entries"),
                   UpTo(limits_.max_logit_bias, "entries"));
  }
  for (const auto& [id, bias] : given.logit_bias()) {
    TANDEM_RETURN_IF_ERROR(CheckTokenId("sampling_params.logit_bias", id, served.vocabulary_size));
    const std::string field = absl::StrCat("sampling_params.logit_bias[", id, "]");
    TANDEM_RETURN_IF_ERROR(
        CheckNumber(field.c_str(), bias, bias >= -100 && bias <= 100, "from -100 to 100"));
  }
  resolved->max_tokens = out->max_tokens();
  resolved->max_tokens_given = given.has_max_tokens();
  resolved->min_tokens = out->min_tokens();
  resolved->skip_special_tokens = !given.has_skip_special_tokens() || given.skip_special_tokens();
  resolved->include_stop_in_output = given.include_stop_str_in_output();
  resolved->wants_logprobs = given.has_logprobs();
  resolved->logprobs_with_text = given.logprobs_with_text();
  out->set_ignore_eos(given.ignore_eos());
  out->set_include_stop_str_in_output(resolved->include_stop_in_output);
  out->set_skip_special_tokens(resolved->skip_special_tokens);
  return absl::OkStatus();
}

absl::Status RequestValidator::ResolveScores(const v1::SamplingParams& given,
                                             GenerationRequest* resolved) const {
  const int32_t max_tokens = resolved->open.sampling().max_tokens();
  if (!given.has_prompt_logprobs()) {
    return CheckNumber("sampling_params.max_tokens", max_tokens, max_tokens >= 1,
                       "1 or more; with prompt_logprobs also 0");
  }
  if (given.prompt_logprobs() < 0 || given.prompt_logprobs() > limits_.max_logprobs) {
    return Refused("sampling_params.prompt_logprobs", absl::StrCat(given.prompt_logprobs()),
                   absl::StrCat("from 0 to ", limits_.max_logprobs));
  }
  resolved->open.set_prompt_logprobs(given.prompt_logprobs());
  return CheckNumber("sampling_params.max_tokens", max_tokens, max_tokens >= 0, "0 or more");
}

absl::Status RequestValidator::ResolveChoices(const v1::SamplingParams& given,
                                              GenerationRequest* resolved) const {
  if (!given.has_n()) return absl::OkStatus();
  if (given.n() < 1 || given.n() > limits_.max_choices) {
    return Refused("sampling_params.n", absl::StrCat(given.n()),
                   absl::StrCat("from 1 to ", limits_.max_choices));
  }
  resolved->num_choices = static_cast<uint32_t>(given.n());
  return absl::OkStatus();
}

absl::Status RequestValidator::ResolveStops(const v1::SamplingParams& given,
                                            const ServedModel& served,
                                            GenerationRequest* resolved) const {
  if (static_cast<size_t>(given.stop_size()) > limits_.max_stop_strings) {
    return Refused("sampling_params.stop", absl::StrCat(given.stop_size(), " strings"),
                   UpTo(limits_.max_stop_strings, "strings"));
  }
  for (int i = 0; i < given.stop_size(); ++i) {
    const std::string field = absl::StrCat("sampling_params.stop[", i, "]");
    if (given.stop(i).empty()) return Refused(field, "an empty string", "one byte or more");
    if (given.stop(i).size() > limits_.max_stop_string_bytes) {
      return Refused(field, absl::StrCat(given.stop(i).size(), " bytes"),
                     UpTo(limits_.max_stop_string_bytes, "bytes"));
    }
    resolved->stop_strings.push_back(given.stop(i));
  }
  if (static_cast<size_t>(given.stop_token_ids_size()) > limits_.max_stop_token_ids) {
    return Refused("sampling_params.stop_token_ids",
                   absl::StrCat(given.stop_token_ids_size(), " ids"),
                   UpTo(limits_.max_stop_token_ids, "ids"));
  }
  std::vector<int32_t>& ids = resolved->stop_token_ids;
  ids.assign(given.stop_token_ids().begin(), given.stop_token_ids().end());
  TANDEM_RETURN_IF_ERROR(
      CheckTokenIds("sampling_params.stop_token_ids", ids, served.vocabulary_size));
  if (!given.ignore_eos()) {
    ids.insert(ids.end(), served.end_of_text_ids.begin(), served.end_of_text_ids.end());
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  resolved->open.mutable_sampling()->mutable_stop_token_ids()->Assign(ids.begin(), ids.end());
  return absl::OkStatus();
}

absl::Status RequestValidator::ResolveSpeculation(const v1::GenerateRequest& request,
                                                  const ServedModel& served,
                                                  GenerationRequest* resolved) const {
  const v1::SpeculationParams& given = request.speculation();
  const float lenience = given.has_lenience() ? given.lenience() : 1.0f;
  TANDEM_RETURN_IF_ERROR(CheckNumber("speculation.lenience", lenience,
                                     lenience > 0 && lenience <= 1, "more than 0, at most 1"));
  if (given.reproducible() && lenience < 1) {
    return Refused("speculation.lenience", absl::StrFormat("%g with reproducible", lenience),
                   "1 when speculation.reproducible is on (lenience changes the output, "
                   "reproducible promises that it does not change)");
  }
  const bool seeded = request.sampling_params().has_seed();
  resolved->seed_given = seeded;
  resolved->open.set_lenience(lenience);
  resolved->open.set_reproducible(given.has_reproducible() ? given.reproducible()
                                                           : seeded && lenience == 1);
  if (given.has_draft_length()) {
    if (given.draft_length() < 0 ||
        static_cast<uint32_t>(given.draft_length()) > limits_.max_draft_length) {
      return Refused("speculation.draft_length", absl::StrCat(given.draft_length()),
                     absl::StrCat("from 0 to ", limits_.max_draft_length));
    }
    resolved->draft_length = static_cast<uint32_t>(given.draft_length());
  }
  if (given.has_max_tree_nodes()) {
    if (given.max_tree_nodes() < 0 ||
        static_cast<uint32_t>(given.max_tree_nodes()) > limits_.max_tree_nodes) {
      return Refused("speculation.max_tree_nodes", absl::StrCat(given.max_tree_nodes()),
                     absl::StrCat("from 0 to ", limits_.max_tree_nodes));
    }
    resolved->max_tree_nodes = static_cast<uint32_t>(given.max_tree_nodes());
  }
  TANDEM_RETURN_IF_ERROR(ResolveDrafter(given, served, resolved));
  const bool has_output = resolved->max_tokens > 0;
  if (!has_output || (given.has_enabled() && !given.enabled())) resolved->draft_length = 0;
  TANDEM_RETURN_IF_ERROR(ResolveDraftSampling(given, resolved));
  if (resolved->drafters.contains(Drafter::kRecycling) && resolved->draft_length != 0u) {
    resolved->open.set_num_successors(RecyclingLookup::kSuccessors);
  }
  return absl::OkStatus();
}

absl::Status RequestValidator::ResolveDraftSampling(const v1::SpeculationParams& given,
                                                    GenerationRequest* resolved) const {
  if (!given.has_draft_sampling()) return absl::OkStatus();
  const v1::DraftSampling& draft = given.draft_sampling();
  TANDEM_RETURN_IF_ERROR(CheckNumber("speculation.draft_sampling.temperature", draft.temperature(),
                                     draft.temperature() >= 0 && draft.temperature() <= 1e6,
                                     "from 0 (the likeliest tokens) to 1e+06"));
  TANDEM_RETURN_IF_ERROR(CheckNumber("speculation.draft_sampling.top_k", draft.top_k(),
                                     draft.top_k() >= -1, "1 or more; 0 or -1 turns it off"));
  TANDEM_RETURN_IF_ERROR(CheckNumber(
      "speculation.draft_sampling.top_p", draft.top_p(),
      !draft.has_top_p() || (draft.top_p() > 0 && draft.top_p() <= 1), "more than 0, at most 1"));
  const bool has_model =
      resolved->drafters.contains(Drafter::kModel) && resolved->draft_length != 0u;
  if (resolved->greedy() || !has_model) {
    resolved->warnings.push_back(absl::StrCat(
        "speculation.draft_sampling: is not used, because ",
        has_model ? "the request is greedy" : "no draft model drafts for the request"));
    return absl::OkStatus();
  }
  resolved->draft_sampling = draft;
  if (draft.top_k() < 0) resolved->draft_sampling.set_top_k(0);
  return absl::OkStatus();
}

absl::Status RequestValidator::ResolveDrafter(const v1::SpeculationParams& given,
                                              const ServedModel& served,
                                              GenerationRequest* resolved) const {
  resolved->drafters = limits_.drafters;
  const std::string& name = given.drafter();
  if (name.empty()) return absl::OkStatus();
  if (name == "none") {
    resolved->draft_length = 0;
    return absl::OkStatus();
  }
  const std::vector<std::string>& models = served.draft_models;
  const bool names_model = std::find(models.begin(), models.end(), name) != models.end();
  const std::optional<Drafter> drafter = names_model ? Drafter::kModel : FindDrafter(name);
  const bool has_model = !models.empty();
  const std::vector<std::string>& selves = served.self_drafters;
  const bool lacks_heads = drafter.has_value() && IsSelfDrafter(*drafter) &&
                           std::find(selves.begin(), selves.end(), name) == selves.end();
  if (!drafter.has_value() || (drafter == Drafter::kModel && !has_model) || lacks_heads ||
      (drafter == Drafter::kRetrieval && !limits_.has_corpus)) {
    std::string known = has_model ? "\"model\", " : "";
    for (const std::string& model : models) absl::StrAppend(&known, QuotedShort(model), ", ");
    std::string heads;
    for (const std::string& self : selves) absl::StrAppend(&heads, QuotedShort(self), ", ");
    const char* retrieval = limits_.has_corpus ? "\"retrieval\", " : "";
    const char* why = drafter == Drafter::kRetrieval  ? " (the server has no --retrieval index)"
                      : lacks_heads && selves.empty() ? " (the server has no heads)"
                      : lacks_heads                   ? " (the server has other heads)"
                      : has_model                     ? ""
                                                      : " (no draft model is attached)";
    return Refused(
        "speculation.drafter", QuotedShort(name),
        absl::StrCat(known, heads, "\"prediction\", \"suffix\", \"ngram\", \"recycling\", ",
                     retrieval, "\"none\", or empty", why));
  }
  resolved->drafters = DrafterSet(*drafter);
  if (names_model) resolved->draft_model = name;
  return absl::OkStatus();
}

absl::Status RequestValidator::ResolvePrediction(const v1::Prediction& given,
                                                 const ServedModel& served,
                                                 GenerationRequest* resolved) const {
  if (resolved->draft_length == 0u || !resolved->drafters.contains(Drafter::kPrediction)) {
    resolved->warnings.emplace_back(
        "speculation.prediction: is not used, because the drafter \"prediction\" does not draft "
        "for "
        "this request");
    return absl::OkStatus();
  }
  std::vector<int32_t>& ids = resolved->prediction;
  std::string field = "speculation.prediction.token_ids";
  switch (given.input_case()) {
    case v1::Prediction::kText: {
      if (given.text().size() > limits_.max_prompt_bytes) {
        return Refused("speculation.prediction.text", absl::StrCat(given.text().size(), " bytes"),
                       UpTo(limits_.max_prompt_bytes, "bytes"));
      }
      TANDEM_ASSIGN_OR_RETURN(
          ids, encoder_.tokenizer().Encode(given.text(), /*add_special_tokens=*/false));
      field = "speculation.prediction.text's token";
      break;
    }
    case v1::Prediction::kTokenIds:
      ids.assign(given.token_ids().ids().begin(), given.token_ids().ids().end());
      break;
    case v1::Prediction::INPUT_NOT_SET:
      return absl::OkStatus();
  }
  TANDEM_RETURN_IF_ERROR(CheckTokenIds(field, ids, served.vocabulary_size));
  // What lies beyond the context cannot become output.
  ids.resize(std::min<size_t>(ids.size(), served.max_context_tokens));
  return absl::OkStatus();
}

absl::Status RequestValidator::ValidateDetokenize(const v1::DetokenizeRequest& request) const {
  return CheckTokenIds("ids", std::span<const int32_t>(request.ids().data(), request.ids_size()),
                       static_cast<uint32_t>(encoder_.tokenizer().num_entries()));
}

}  // namespace tandem
