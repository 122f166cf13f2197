#include "services/router/router_options.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "common/rpc/heartbeat.h"
#include "common/rpc/protocol.h"

namespace tandem {
namespace {

void AddFlags(CLI::App* app, RouterOptions* options) {
  const auto flag = [app](const std::string& name, auto& value, const std::string& environment,
                          const std::string& help) {
    return app->add_option(name, value, help)->envname(environment)->capture_default_str();
  };
  EngineOptions& engine = options->engine;
  RequestLimits& limits = options->limits;

  flag("--target", options->target_folder, "TANDEM_TARGET",
       "Folder of the target model: its tokenizer and end-of-text ids are used here")
      ->required()
      ->type_name("DIR");
  flag("--verifier", options->verifier_address, "TANDEM_VERIFIER",
       "Where the verifier worker listens: unix:PATH or HOST:PORT. Several worker pods: their "
       "addresses with commas between them, or dns:NAME:PORT, every address of NAME being a pod")
      ->required()
      ->type_name("ADDRESS");
  flag("--drafter", options->drafter_address, "TANDEM_DRAFTER",
       "Where the draft worker listens, or none: decode plainly. Of several pods: as many "
       "addresses in the same order, or dns: with the same NAME")
      ->type_name("ADDRESS");
  flag("--discover-seconds", options->discover_seconds, "TANDEM_DISCOVER_SECONDS",
       "Seconds after which dns: is asked for worker pods again")
      ->check(CLI::Range(0.1, 3600.0));
  flag("--listen", options->listen_address, "TANDEM_LISTEN",
       "Where clients connect: HOST:PORT (port 0 picks a free one) or unix:PATH")
      ->type_name("ADDRESS");
  flag("--admin", options->admin_address, "TANDEM_ADMIN",
       "Where operators connect with HTTP, for metrics and health: HOST:PORT (port 0 picks a free "
       "one), or none")
      ->type_name("ADDRESS");
  flag("--model-name", options->model_name, "TANDEM_MODEL_NAME",
       "Name of the model in the API; empty: the folder's")
      ->type_name("NAME");

  const auto file = [app](const std::string& name, std::string& path,
                          const std::string& environment, const std::string& help) {
    app->add_option(name, path, help)->envname(environment)->type_name("FILE")->group("Security");
  };
  file("--tls-certificate", options->security.tls.certificate, "TANDEM_TLS_CERTIFICATE",
       "PEM: speak TLS over TCP (not on a Unix socket), and HTTPS on --admin. Read again when it "
       "changes, as the other files are");
  file("--tls-key", options->security.tls.key, "TANDEM_TLS_KEY", "PEM: key of the certificate");
  file("--tls-client-ca", options->security.tls.authorities, "TANDEM_TLS_CLIENT_CA",
       "PEM: clients of --listen must show a certificate that one of these signed");
  file("--token-file", options->security.token_file, "TANDEM_TOKEN_FILE",
       "Lines `client TOKEN` or `admin TOKEN`: every call, and every page of --admin but the "
       "probes', needs one");
  file("--worker-ca", options->worker_tls.authorities, "TANDEM_WORKER_CA",
       "PEM: speak TLS to workers over TCP, whose certificates one of these signed");
  file("--worker-certificate", options->worker_tls.certificate, "TANDEM_WORKER_CERTIFICATE",
       "PEM: what the workers are shown");
  file("--worker-key", options->worker_tls.key, "TANDEM_WORKER_KEY", "PEM: its key");
  flag("--worker-name", options->worker_name, "TANDEM_WORKER_NAME",
       "Name that the workers' certificates must have; empty: host of their address")
      ->type_name("NAME")
      ->group("Security");
  flag("--max-connection-age", options->max_connection_age_seconds, "TANDEM_MAX_CONNECTION_AGE",
       "Seconds after which a client is told to connect anew, and meets the certificates of then; "
       "its streams go on. 0: never")
      ->check(CLI::Range(0.0, 0.0) | CLI::Range(1.0, 1e6))
      ->group("Security");
  app->add_flag("--insecure", options->insecure,
                "Allow addresses that other machines reach, without TLS or tokens")
      ->envname("TANDEM_INSECURE")
      ->group("Security");

  flag("--draft-length", options->draft_length, "TANDEM_DRAFT_LENGTH",
       "Tokens drafted in a round, where a request does not say: a number, or auto for what pays")
      ->check(CLI::IsMember({"auto"}) | CLI::Range(0u, kMaxDraftLength))
      ->type_name("auto|N")
      ->group("Speculation");
  flag("--max-draft-length", limits.max_draft_length, "TANDEM_MAX_DRAFT_LENGTH",
       "Longest draft that a request may ask for; sizes the log-prob ring")
      ->check(CLI::Range(1u, kMaxDraftLength))
      ->group("Speculation");
  app->add_flag("--drafter-required", engine.workers.drafter_required,
                "Exit when the drafter does not fit the target, instead of decoding plainly")
      ->envname("TANDEM_DRAFTER_REQUIRED")
      ->group("Speculation");
  flag(
      "--transport", options->transport, "TANDEM_TRANSPORT",
      "How log-probs go from drafter to verifier: auto (the first that both can), cuda_ipc, shm or "
      "inline")
      ->check(CLI::IsMember({"auto", "cuda_ipc", "shm", "inline"}))
      ->type_name("NAME")
      ->group("Speculation");

  flag("--max-slots", engine.workers.max_slots, "TANDEM_MAX_SLOTS",
       "Requests that run at once (no more than the verifier has room for)")
      ->check(CLI::Range(1u, 1024u))
      ->group("Capacity");
  flag("--max-queue", engine.max_queue, "TANDEM_MAX_QUEUE",
       "Requests that wait for a slot; more are refused")
      ->group("Capacity");
  flag("--step-rows", engine.step_rows, "TANDEM_STEP_ROWS",
       "Rows of one batch: how much of a prompt is worked off at once")
      ->check(CLI::Range(2 * kMaxDraftLength, 65536u))
      ->group("Capacity");
  flag("--step-seconds", engine.step_seconds, "TANDEM_STEP_SECONDS",
       "While others decode, prompts get about so much time between two of their rounds")
      ->check(CLI::PositiveNumber)
      ->group("Capacity");
  flag("--cohorts", engine.num_cohorts, "TANDEM_COHORTS",
       "2: drafts for one half of the requests while the other half is verified; pays where the "
       "workers do not share what they compute on")
      ->check(CLI::Range(1u, 2u))
      ->group("Capacity");
  flag("--max-streams", options->max_streams, "TANDEM_MAX_STREAMS",
       "Calls of one connection at once")
      ->check(CLI::Range(1, 1 << 20))
      ->group("Capacity");
  flag("--max-message-bytes", options->max_message_bytes, "TANDEM_MAX_MESSAGE_BYTES",
       "Largest message that a client may send")
      ->check(CLI::Range(1024, kMaxWorkerMessageBytes / 2))
      ->group("Capacity");
  flag("--stream-buffer-bytes", options->stream_buffer_bytes, "TANDEM_STREAM_BUFFER_BYTES",
       "What may wait for a client to read its stream; one that is slower is given up")
      ->check(CLI::Range(16 << 10, 1 << 30))
      ->group("Capacity");
  flag("--stream-padding-bytes", options->stream_padding_bytes, "TANDEM_STREAM_PADDING_BYTES",
       "Pads every message of a stream to a multiple of this, so that its size does not tell how "
       "much of a draft was accepted; 512 holds what a round gives. 0: none")
      ->check(CLI::Range(0, 0) | CLI::Range(64, 65536))
      ->group("Security");

  flag("--verifier-timeout", engine.verifier_timeout_seconds, "TANDEM_VERIFIER_TIMEOUT",
       "Seconds that requests wait for a verifier that is gone")
      ->check(CLI::NonNegativeNumber)
      ->group("Patience");
  flag("--drafter-timeout", engine.drafter_timeout_seconds, "TANDEM_DRAFTER_TIMEOUT",
       "Seconds after which a drafter that does not answer is given up")
      ->check(CLI::PositiveNumber)
      ->group("Patience");
  flag("--max-crashes", engine.max_lost_rounds, "TANDEM_MAX_CRASHES",
       "A request that was computed by so many dying verifiers in a row is refused")
      ->check(CLI::Range(1, 1000))
      ->group("Patience");
  flag("--heartbeat-timeout", engine.workers.heartbeat_timeout_seconds, "TANDEM_HEARTBEAT_TIMEOUT",
       "Seconds without a sign of life after which a worker counts as hung (or ten times what its "
       "batches usually take, if that is longer); 0: never")
      ->check(CLI::Range(0.0, 0.0) | CLI::Range(kShortestHeartbeatTimeoutSeconds, 86400.0))
      ->group("Patience");
  flag("--drafter-wait", options->drafter_wait_seconds, "TANDEM_DRAFTER_WAIT",
       "Seconds that `ready` waits for the drafter; it may also come later")
      ->check(CLI::NonNegativeNumber)
      ->group("Patience");
  flag("--drain-seconds", options->drain_seconds, "TANDEM_DRAIN_SECONDS",
       "On SIGTERM or SIGINT: seconds for running requests to finish; the same signal again stops "
       "at once")
      ->check(CLI::NonNegativeNumber)
      ->group("Patience");

  flag("--audit-fraction", engine.audit_fraction, "TANDEM_AUDIT_FRACTION",
       "Share of requests that is audited: decoded again without drafts in idle time, or sampled "
       "for two statistics (docs/audit.md)")
      ->check(CLI::Range(0.0, 1.0))
      ->group("Audit");
  app->add_flag("--audit-fails-readiness", options->audit_fails_readiness,
                "Not ready any more once the audit found a difference")
      ->envname("TANDEM_AUDIT_FAILS_READINESS")
      ->group("Audit");

  flag("--max-prompt-bytes", limits.max_prompt_bytes, "TANDEM_MAX_PROMPT_BYTES",
       "Longest prompt text")
      ->group("Limits of a request");
  flag("--default-max-tokens", limits.default_max_tokens, "TANDEM_DEFAULT_MAX_TOKENS",
       "max_tokens of a request that does not say")
      ->check(CLI::PositiveNumber)
      ->group("Limits of a request");
  flag("--max-stops", limits.max_stop_strings, "TANDEM_MAX_STOPS", "Stop strings")
      ->group("Limits of a request");
  flag("--max-stop-bytes", limits.max_stop_string_bytes, "TANDEM_MAX_STOP_BYTES",
       "Bytes of one stop string")
      ->group("Limits of a request");
  flag("--max-stop-token-ids", limits.max_stop_token_ids, "TANDEM_MAX_STOP_TOKEN_IDS",
       "Stop token ids")
      ->group("Limits of a request");
  flag("--max-logit-bias", limits.max_logit_bias, "TANDEM_MAX_LOGIT_BIAS", "Entries of logit_bias")
      ->group("Limits of a request");
  flag("--max-logprobs", limits.max_logprobs, "TANDEM_MAX_LOGPROBS", "Top log-probs of a token")
      ->check(CLI::Range(0, 20))
      ->group("Limits of a request");

  app->add_flag("--exit-with-parent", options->exit_with_parent,
                "Stop when the process that started this one dies")
      ->group("Process");
  flag("--log-level", options->log.level, "TANDEM_LOG_LEVEL", "debug, info, warn, error or off")
      ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}))
      ->group("Process");
  flag("--log-format", options->log.format, "TANDEM_LOG_FORMAT", "text, or json: one object a line")
      ->check(CLI::IsMember({"text", "json"}))
      ->group("Process");
  app->add_flag("--log-prompts", options->log_prompts,
                "Log the prompts of requests, texts and token ids (else neither)")
      ->envname("TANDEM_LOG_PROMPTS")
      ->group("Process");
}

}  // namespace

std::optional<int> ParseCommandLine(int argc, char** argv, RouterOptions* options) {
  CLI::App app(
      "Tandem's router: takes Generate calls, coordinates the draft worker and the verifier "
      "worker, and streams the target's tokens. Prints one line `ready: ADDRESS` on standard "
      "output when it can serve. `tandem serve` starts it together with its workers.",
      "tandem-router");
  app.get_formatter()->column_width(34);
  AddFlags(&app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  options->engine.workers.transport = options->transport == "cuda_ipc" ? TransportChoice::kCudaIpc
                                      : options->transport == "shm"    ? TransportChoice::kShm
                                      : options->transport == "inline" ? TransportChoice::kInline
                                                                       : TransportChoice::kAuto;
  options->engine.workers.has_drafter = options->drafter_address != "none";
  options->engine.workers.max_draft_length = options->limits.max_draft_length;
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
