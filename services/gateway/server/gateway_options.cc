#include "services/gateway/server/gateway_options.h"

#include "common/flags/flag_parser.h"

namespace tandem::gateway {

std::optional<int> ParseCommandLine(int argc, char** argv, GatewayOptions* options) {
  FlagParser parser(Program::kGateway,
                    "Tandem's gateway takes requests of OpenAI's HTTP API and passes them to a "
                    "router. It prints one\n"
                    "line `http: ADDRESS` on standard output when it listens.");
  parser.SetVersion(TANDEM_VERSION);
  parser.Bind("--listen", &options->listen);
  parser.Bind("--connect", &options->connect);
  parser.Bind("--admin", &options->admin);
  parser.Bind("--max-header-bytes", &options->limits.header_bytes);
  parser.Bind("--max-body-bytes", &options->limits.body_bytes);
  parser.Bind("--max-answer-bytes", &options->limits.answer_bytes);
  parser.Bind("--max-held-bytes", &options->limits.all_held_bytes);
  parser.Bind("--max-connections", &options->limits.connections);
  parser.Bind("--request-seconds", &options->limits.request_seconds);
  parser.Bind("--idle-seconds", &options->limits.idle_seconds);
  parser.Bind("--write-seconds", &options->limits.write_seconds);
  parser.Bind("--min-body-rate", &options->limits.body_rate);
  parser.Bind("--drain-seconds", &options->drain_seconds);
  parser.Bind("--tls-certificate", &options->security.tls.certificate);
  parser.Bind("--tls-key", &options->security.tls.key);
  parser.Bind("--tls-client-ca", &options->security.tls.authorities);
  parser.Bind("--token-file", &options->security.token_file);
  parser.Bind("--router-ca", &options->router_tls.authorities);
  parser.Bind("--router-certificate", &options->router_tls.certificate);
  parser.Bind("--router-key", &options->router_tls.key);
  parser.Bind("--router-token-file", &options->router_token_file);
  parser.Bind("--insecure", &options->insecure);
  parser.Bind("--report-refusal", &options->report_refusal);
  parser.Bind("--exit-with-parent", &options->exit_with_parent);
  parser.Bind("--log-level", &options->log.level);
  parser.Bind("--log-format", &options->log.format);
  return parser.ParseOrExitCode(argc, argv);
}

}  // namespace tandem::gateway
