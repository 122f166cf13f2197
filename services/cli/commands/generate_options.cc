#include "services/cli/commands/generate_options.h"

#include <charconv>
#include <cstdint>
#include <utility>

#include "common/status.h"
#include "services/cli/supervisor/lookup_names.h"
#include "services/cli/supervisor/server_flags.h"
#include "services/cli/terminal/option_parser.h"
#include "services/cli/terminal/text_file.h"

namespace tandem::cli {

namespace {

absl::Status AddLogitBias(const std::string& text, v1::SamplingParams* params) {
  const char* end = text.data() + text.size();
  int32_t id = 0;
  float bias = 0;
  const auto id_end = std::from_chars(text.data(), end, id);
  if (id_end.ec == std::errc() && id_end.ptr != end && *id_end.ptr == '=') {
    const auto bias_end = std::from_chars(id_end.ptr + 1, end, bias);
    if (bias_end.ec == std::errc() && bias_end.ptr == end) {
      (*params->mutable_logit_bias())[id] = bias;
      return absl::OkStatus();
    }
  }
  return InvalidArgument("--logit-bias: got \"" + text + "\", want ID=B such as 42=-1.5");
}

void BindSampling(FlagParser& parser, v1::SamplingParams* params) {
  parser.OnValue<float>("--temperature", [=](float v) { params->set_temperature(v); });
  parser.OnValue<float>("--top-p", [=](float v) { params->set_top_p(v); });
  parser.OnValue<int32_t>("--top-k", [=](int32_t v) { params->set_top_k(v); });
  parser.OnValue<float>("--min-p", [=](float v) { params->set_min_p(v); });
  parser.OnValue<float>("--repetition-penalty",
                        [=](float v) { params->set_repetition_penalty(v); });
  parser.OnValue<float>("--presence-penalty", [=](float v) { params->set_presence_penalty(v); });
  parser.OnValue<float>("--frequency-penalty", [=](float v) { params->set_frequency_penalty(v); });
  parser.OnText("--logit-bias",
                [=](const std::string& text) { return AddLogitBias(text, params); });
  parser.OnValue<uint64_t>("--seed", [=](uint64_t v) { params->set_seed(v); });
}

void BindStops(FlagParser& parser, v1::SamplingParams* params) {
  parser.OnValue<int32_t>("--max-tokens", [=](int32_t v) { params->set_max_tokens(v); });
  parser.OnValue<int32_t>("--min-tokens", [=](int32_t v) { params->set_min_tokens(v); });
  parser.OnValue<std::string>("--stop", [=](const std::string& v) { params->add_stop(v); });
  parser.OnValue<int32_t>("--stop-token-id", [=](int32_t v) { params->add_stop_token_ids(v); });
  parser.OnValue<bool>("--ignore-eos", [=](bool v) { params->set_ignore_eos(v); });
  parser.OnValue<bool>("--include-stop",
                       [=](bool v) { params->set_include_stop_str_in_output(v); });
}

void BindSpeculation(FlagParser& parser, v1::SpeculationParams* params, ServerOptions& server) {
  parser.OnValue<int32_t>("--draft-length", [=](int32_t v) { params->set_draft_length(v); });
  parser.OnValue<int32_t>("--max-tree-nodes", [=](int32_t v) { params->set_max_tree_nodes(v); });
  parser.OnValue<bool>("--no-draft", [=](bool v) { params->set_enabled(!v); });
  parser.OnValue<std::string>("--drafter", [=, &server](const std::string& v) {
    if (v == "none") {
      params->set_enabled(false);
      server.drafter = "none";
    } else {
      params->set_drafter(v);
      // Lookups and heads need no draft worker.
      if (IsLookup(v) || IsSelfDrafter(v)) server.drafter = "none";
      if (IsSelfDrafter(v)) server.self_drafter = v;
    }
  });
  parser.OnValue<float>("--draft-temperature",
                        [=](float v) { params->mutable_draft_sampling()->set_temperature(v); });
  parser.OnValue<int32_t>("--draft-top-k",
                          [=](int32_t v) { params->mutable_draft_sampling()->set_top_k(v); });
  parser.OnValue<float>("--draft-top-p",
                        [=](float v) { params->mutable_draft_sampling()->set_top_p(v); });
  parser.OnValue<bool>("--reproducible", [=](bool v) { params->set_reproducible(v); });
  parser.OnValue<float>("--lenience", [=](float v) { params->set_lenience(v); });
}

void BindGenerate(FlagParser& parser, GenerateOptions& options) {
  v1::GenerateRequest* request = &options.request;
  v1::SamplingParams* params = request->mutable_sampling_params();
  parser.BindArgument("PROMPT", "The output continues this text. - stands for standard input.",
                      /*required=*/false, &options.prompt);
  parser.Bind("--prompt-file", &options.prompt_file);
  parser.OnValue<bool>("--no-special-tokens", [=](bool v) { request->set_add_special_tokens(!v); });
  parser.Bind("--echo", &options.echo);
  parser.Bind("--compare", &options.compare);
  parser.Bind("--race", &options.race);
  parser.Bind("--json", &options.json);
  parser.OnValue<bool>("--no-skip-special", [=](bool v) { params->set_skip_special_tokens(!v); });
  parser.OnValue<int32_t>("--logprobs", [=](int32_t v) { params->set_logprobs(v); });
  BindColor(parser, options.color);
  BindRequest(parser, request, options.session.server);
  parser.OnText("--prediction", [=](const std::string& path) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadTextFile("--prediction", path));
    request->mutable_speculation()->mutable_prediction()->set_text(text);
    return absl::OkStatus();
  });
  BindSession(parser, options.session);
}

std::string CheckGenerate(const FlagParser& parser, GenerateOptions& options) {
  if (options.prompt.empty() == options.prompt_file.empty()) {
    return options.prompt.empty() ? "a PROMPT is needed (or - for standard input, or --prompt-file)"
                                  : "give a PROMPT or --prompt-file, not both";
  }
  const v1::SpeculationParams& speculation = options.request.speculation();
  if (parser.IsTyped("--no-draft") && !speculation.drafter().empty()) {
    return "--no-draft turns off all drafters, and --drafter names one: give one or the other";
  }
  if (options.race && !options.compare)
    return "--race shows the two sides of --compare: give it too";
  if (parser.IsTyped("--logprobs") && !options.json) {
    return "--logprobs: log-probabilities are part of the JSON output only; give --json too";
  }
  return CheckSession(parser, options.session);
}

}  // namespace

void BindRequest(FlagParser& parser, v1::GenerateRequest* request, ServerOptions& server) {
  BindSampling(parser, request->mutable_sampling_params());
  BindStops(parser, request->mutable_sampling_params());
  BindSpeculation(parser, request->mutable_speculation(), server);
}

Parsed<GenerateOptions> ParseGenerate(std::vector<std::string> arguments) {
  return ParseOptions<GenerateOptions>(Program::kGenerate,
                                       "Streams the completion of a prompt, each token in the "
                                       "color of its source, and sums up what\n"
                                       "the completion cost.",
                                       std::move(arguments), BindGenerate, CheckGenerate);
}

}  // namespace tandem::cli
