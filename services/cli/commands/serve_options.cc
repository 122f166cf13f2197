#include "services/cli/commands/serve_options.h"

#include <utility>

#include "services/cli/supervisor/server_flags.h"
#include "services/cli/terminal/option_parser.h"

namespace tandem::cli {

namespace {

void BindServe(FlagParser& parser, ServeArguments& serve) {
  ServerOptions& server = serve.server;
  parser.Bind("--listen", &server.listen);
  parser.Bind("--admin", &server.admin);
  parser.Bind("--http", &server.http);
  parser.Bind("--drafter", &server.drafter);
  parser.Bind("--drain-seconds", &server.drain_seconds);
  parser.Bind("--heartbeat-timeout", &server.heartbeat_timeout_seconds);
  parser.Bind("--tls-certificate", &server.security.tls.certificate);
  parser.Bind("--tls-key", &server.security.tls.key);
  parser.Bind("--tls-client-ca", &server.security.tls.authorities);
  parser.Bind("--token-file", &server.security.token_file);
  parser.Bind("--insecure", &server.insecure);
  parser.Bind("--log-format", &server.log_format);
  BindColor(parser, serve.color);
  BindServer(parser, server);
}

}  // namespace

Parsed<ServeArguments> ParseServe(std::vector<std::string> arguments) {
  return ParseOptions<ServeArguments>(
      Program::kServe,
      "Starts the router and its two workers, keeps them running and serves until Ctrl-C or\n"
      "SIGTERM. Prints `ready: ADDRESS` on standard output when it can serve, and logs on "
      "standard\n"
      "error. --http 127.0.0.1:8080 also starts a gateway for clients of OpenAI's HTTP API.",
      std::move(arguments), BindServe, [](const FlagParser&, ServeArguments&) { return ""; });
}

}  // namespace tandem::cli
