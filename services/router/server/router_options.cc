#include "services/router/server/router_options.h"

#include <iostream>

#include "common/flags/flag_parser.h"

namespace tandem {
namespace {

void BindSecurity(FlagParser& parser, RouterOptions& options) {
  parser.Bind("--tls-certificate", &options.security.tls.certificate);
  parser.Bind("--tls-key", &options.security.tls.key);
  parser.Bind("--tls-client-ca", &options.security.tls.authorities);
  parser.Bind("--token-file", &options.security.token_file);
  parser.Bind("--worker-ca", &options.worker_tls.authorities);
  parser.Bind("--worker-certificate", &options.worker_tls.certificate);
  parser.Bind("--worker-key", &options.worker_tls.key);
  parser.Bind("--worker-name", &options.worker_name);
  parser.Bind("--max-connection-age", &options.max_connection_age_seconds);
  parser.Bind("--insecure", &options.insecure);
  parser.Bind("--stream-padding-bytes", &options.stream_padding_bytes);
}

void BindEngine(FlagParser& parser, EngineOptions& engine) {
  parser.Bind("--drafter-required", &engine.workers.drafter_required);
  parser.Bind("--max-slots", &engine.workers.max_slots);
  parser.Bind("--max-queue", &engine.max_queue);
  parser.Bind("--step-rows", &engine.step_rows);
  parser.Bind("--step-seconds", &engine.step_seconds);
  parser.Bind("--cohorts", &engine.num_cohorts);
  parser.Bind("--verifier-timeout", &engine.verifier_timeout_seconds);
  parser.Bind("--load-timeout", &engine.workers.load_timeout_seconds);
  parser.Bind("--drafter-timeout", &engine.drafter_timeout_seconds);
  parser.Bind("--max-crashes", &engine.max_lost_rounds);
  parser.Bind("--heartbeat-timeout", &engine.workers.heartbeat_timeout_seconds);
  parser.Bind("--audit-fraction", &engine.audit_fraction);
}

void BindRequestLimits(FlagParser& parser, RequestLimits& limits) {
  parser.Bind("--max-draft-length", &limits.max_draft_length);
  parser.Bind("--max-prompt-bytes", &limits.max_prompt_bytes);
  parser.Bind("--default-max-tokens", &limits.default_max_tokens);
  parser.Bind("--max-stops", &limits.max_stop_strings);
  parser.Bind("--max-stop-bytes", &limits.max_stop_string_bytes);
  parser.Bind("--max-stop-token-ids", &limits.max_stop_token_ids);
  parser.Bind("--max-logit-bias", &limits.max_logit_bias);
  parser.Bind("--max-logprobs", &limits.max_logprobs);
  parser.Bind("--max-choices", &limits.max_choices);
}

void BindFlags(FlagParser& parser, RouterOptions& options) {
  parser.Bind("--target", &options.target_folder);
  parser.Bind("--verifier", &options.verifier_address);
  parser.Bind("--drafter", &options.drafter_address);
  parser.Bind("--discover-seconds", &options.discover_seconds);
  parser.Bind("--listen", &options.listen_address);
  parser.Bind("--admin", &options.admin_address);
  parser.Bind("--model-name", &options.model_name);
  parser.Bind("--chat-template", &options.chat_template);
  parser.Bind("--tool-call-format", &options.tool_call_format);
  parser.Bind("--draft-length", &options.draft_length);
  parser.Bind("--max-tree-nodes", &options.limits.max_tree_nodes);
  parser.BindList("--drafters", &options.drafters);
  parser.Bind("--retrieval", &options.retrieval);
  parser.Bind("--ngram-history", &options.engine.ngram.history);
  parser.Bind("--ngram-least", &options.engine.ngram.least_order);
  parser.Bind("--ngram-most", &options.engine.ngram.most_order);
  parser.Bind("--transport", &options.transport);
  parser.Bind("--max-streams", &options.max_streams);
  parser.Bind("--max-stream-calls", &options.max_stream_calls);
  parser.Bind("--max-message-bytes", &options.max_message_bytes);
  parser.Bind("--stream-buffer-bytes", &options.stream_buffer_bytes);
  parser.Bind("--drafter-required-at-start", &options.drafter_required_at_start);
  parser.Bind("--drafter-wait", &options.drafter_wait_seconds);
  parser.Bind("--drain-seconds", &options.drain_seconds);
  parser.Bind("--audit-fails-readiness", &options.audit_fails_readiness);
  parser.Bind("--report-refusal", &options.report_refusal);
  parser.Bind("--exit-with-parent", &options.exit_with_parent);
  parser.Bind("--log-level", &options.log.level);
  parser.Bind("--log-format", &options.log.format);
  parser.Bind("--log-prompts", &options.log_prompts);
  BindEngine(parser, options.engine);
  BindRequestLimits(parser, options.limits);
  BindSecurity(parser, options);
}

// Reads the lists of drafters. `given`: somebody gave --drafters. Returns a complaint, or "".
std::string SetDrafters(bool given, RouterOptions* options) {
  const bool has_corpus = !options->retrieval.empty();
  options->engine.has_corpus = has_corpus;
  options->limits.has_corpus = has_corpus;
  DrafterSet& drafters = options->limits.drafters;
  drafters = DrafterSet();
  for (const std::string& name : options->drafters) {
    if (name == "none" && options->drafters.size() > 1) {
      return "--drafters: got none beside other drafters, allowed: none alone";
    }
    if (name == "model" && given && options->engine.workers.num_drafters == 0) {
      return "--drafters: got model, allowed without a draft worker: the others (--drafter ADDRESS "
             "names a draft worker)";
    }
    if (name == "retrieval" && !has_corpus) {
      return "--drafters: retrieval needs an index (--retrieval FILE)";
    }
    if (name != "none") drafters.Add(*FindDrafter(name));
  }
  // Somebody who gives an index wants it to be used.
  if (has_corpus && !given) drafters.Add(Drafter::kRetrieval);
  // The same holds for heads. A verifier without heads has none of these drafters. Heads of one
  // kind stand for all kinds, because others may be swapped in.
  const bool lists_heads = std::any_of(std::begin(kSelfDrafters), std::end(kSelfDrafters),
                                       [&](Drafter drafter) { return drafters.contains(drafter); });
  for (const Drafter drafter : kSelfDrafters) {
    if (!given || lists_heads) drafters.Add(drafter);
  }
  return "";
}

}  // namespace

std::optional<int> ParseCommandLine(int argc, char** argv, RouterOptions* options) {
  FlagParser parser(Program::kRouter,
                    "Tandem's router takes Generate calls, coordinates the draft worker and the "
                    "verifier worker,\n"
                    "and streams the target's tokens. It prints one line `ready: ADDRESS` on "
                    "standard output when\n"
                    "it can serve. `tandem serve` starts it together with its workers.");
  BindFlags(parser, *options);
  if (const std::optional<int> exit_code = parser.ParseOrExitCode(argc, argv)) return exit_code;
  options->engine.workers.transport = options->transport == "cuda_ipc" ? TransportChoice::kCudaIpc
                                      : options->transport == "shm"    ? TransportChoice::kShm
                                      : options->transport == "inline" ? TransportChoice::kInline
                                                                       : TransportChoice::kAuto;
  options->engine.debug_lines = options->log.level == "debug";
  options->engine.workers.num_drafters =
      std::min(NumDraftModels(options->drafter_address), kMaxDraftModels);
  const bool has_draft_worker = options->engine.workers.num_drafters > 0;
  options->engine.workers.num_places = has_draft_worker ? kMaxDraftModels : 0;
  options->engine.workers.max_draft_length = options->limits.max_draft_length;
  options->engine.workers.max_tree_nodes = options->limits.max_tree_nodes;
  const NgramOptions& ngram = options->engine.ngram;
  if (ngram.least_order > ngram.most_order) {
    std::cerr << "--ngram-least: got " << ngram.least_order << ", allowed: at most "
              << ngram.most_order << " (--ngram-most)\n";
    return 2;
  }
  if (const std::string complaint = SetDrafters(parser.IsGiven("--drafters"), options);
      !complaint.empty()) {
    std::cerr << complaint << "\n";
    return 2;
  }
  if (options->draft_length != "auto") {
    options->engine.draft_length = static_cast<uint32_t>(std::stoul(options->draft_length));
  }
  if (options->engine.draft_length > options->limits.max_draft_length) {
    std::cerr << "--draft-length: got " << options->draft_length << ", allowed: at most "
              << options->limits.max_draft_length << " (--max-draft-length)\n";
    return 2;
  }
  return std::nullopt;
}

}  // namespace tandem
