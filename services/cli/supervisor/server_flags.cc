#include "services/cli/supervisor/server_flags.h"

#include "services/cli/client/listen_address.h"

namespace tandem::cli {

void BindServer(FlagParser& parser, ServerOptions& server) {
  parser.Bind("--target", &server.target);
  parser.Bind("--draft", &server.draft);
  parser.Bind("--draft-optional", &server.draft_optional);
  parser.Bind("--models", &server.models);
  parser.Bind("--start-seconds", &server.start_seconds);
  parser.BindHandedOn(&server.handed_on);
}

void BindClientSecurity(FlagParser& parser, ClientSecurityOptions& security) {
  parser.Bind("--tls-ca", &security.tls.authorities);
  parser.Bind("--tls-certificate", &security.tls.certificate);
  parser.Bind("--tls-key", &security.tls.key);
  parser.Bind("--token-file", &security.token_file);
  parser.Bind("--insecure", &security.insecure);
}

void BindSession(FlagParser& parser, SessionOptions& session) {
  parser.Bind("--connect", &session.connect);
  parser.Bind("--verbose", &session.server.verbose);
  BindClientSecurity(parser, session.security);
  BindServer(parser, session.server);
}

std::string CheckSession(const FlagParser& parser, SessionOptions& session) {
  if (session.connect.empty()) return "";
  const auto address = ParseListenAddress(session.connect, "--connect");
  if (!address.ok()) return std::string(address.status().message());
  if (parser.IsTyped("--target") || parser.IsTyped("--draft") || parser.IsTyped("--models")) {
    return "--target, --draft and --models are for a private server, and --connect names a running "
           "server: give one or the other";
  }
  for (const auto& [name, text] : session.server.handed_on) {
    if (!parser.IsTyped(name)) continue;
    return name + " is for a private server, and --connect names a running server" +
           (name == "--drafters" ? " (--drafter NAME chooses one for the request)" : "");
  }
  session.server.target.clear();
  session.server.draft.clear();
  session.server.models.clear();
  return "";
}

}  // namespace tandem::cli
